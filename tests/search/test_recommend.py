"""Of schedules that cannot be told apart, the guidelines and the device choose."""

from prism_transformer.model.head_schedule import HeadSchedule
from prism_transformer.search.candidates import Candidate
from prism_transformer.search.recommend import Choice


def candidates(*texts: str) -> list[Candidate]:
    names = {"12x12": "uniform"}
    return [Candidate(names.get(text, text), HeadSchedule.parse(text, d_model=768), "", True) for text in texts]


def choice(*texts: str, **changes: object) -> Choice:
    settings = {"base_heads": 12, "device": "cuda", "tensor_parallel": None} | changes
    return Choice(in_set=candidates(*texts), **settings)  # type: ignore[arg-type]


def chosen(*texts: str, **changes: object) -> str:
    return choice(*texts, **changes).recommended()


def test_the_lowest_loss_where_the_guidelines_do_not_care() -> None:
    assert chosen("4x2,6x2,12x8", "6x2,12x10") == "4x2,6x2,12x8"


def test_one_that_keeps_more_of_the_guidelines() -> None:
    """A step of one layer and fewer than half of the layers at the base are two warnings."""
    assert chosen("3x1,6x7,12x4", "6x2,12x10") == "6x2,12x10"


def test_uniform_does_not_win_by_keeping_guidelines_of_widening() -> None:
    """Its loss was the higher one, and it has no step that could be too short."""
    assert chosen("3x1,6x7,12x4", "12x12") == "3x1,6x7,12x4"
    assert chosen("3x1,6x7,12x4", "12x12", "6x2,12x10") == "6x2,12x10"


def test_uniform_where_it_leads_or_the_others_cannot_be_shared() -> None:
    assert chosen("12x12", "6x2,12x10") == "uniform"
    assert chosen("3x2,6x2,12x8", "12x12", tensor_parallel=4) == "uniform"


def test_one_that_the_devices_can_share() -> None:
    assert chosen("3x2,6x2,12x8", "6x2,12x10", tensor_parallel=6) == "6x2,12x10"


def test_the_limits_are_those_of_the_device() -> None:
    """Head dim 256 is fine on a data-centre card; on a consumer card its backward pass has a limit."""
    assert chosen("3x2,12x10", "4x2,12x10", device="cuda-consumer") == "4x2,12x10"


def test_what_speaks_against_it_is_said() -> None:
    alone = choice("3x1,12x11")
    assert "only schedule" in alone.why("3x1,12x11")
    assert any("holds 1 layer" in sentence for sentence in alone.against("3x1,12x11"))


def test_what_was_recorded_is_explained_although_the_rules_would_choose_another_by_now() -> None:
    older = choice("6x2,12x10", "3x1,6x7,12x4")
    assert older.recommended() == "6x2,12x10"
    assert older.why("3x1,6x7,12x4").startswith("it cannot be told from 6x2,12x10, whose loss was lower")
    assert len(older.against("3x1,6x7,12x4")) == 2


def test_heads_that_no_devices_can_share_do_not_matter_where_none_shall() -> None:
    """3 and 4 heads have no common divisor, 6 and 12 have; each keeps all other guidelines."""
    texts = ("3x2,4x2,12x8", "6x2,12x10")
    assert chosen(*texts) == "3x2,4x2,12x8" and choice(*texts).against("3x2,4x2,12x8") == []
    assert chosen(*texts, tensor_parallel=2) == "6x2,12x10"
