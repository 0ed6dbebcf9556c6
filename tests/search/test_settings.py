"""What a search may choose from, and what is refused."""

from dataclasses import replace

import pytest

from prism_transformer.errors import InputError
from prism_transformer.search.settings import SearchSettings
from prism_transformer.training.recipe import ModelSettings

MODEL = ModelSettings(layers=12, d_model=768, heads=12)


def problems(model: ModelSettings = MODEL, **changes: object) -> str:
    settings = replace(SearchSettings(), **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError) as error:
        settings.check()
        settings.space(model)
    return str(error.value)


def test_the_papers_schedule_and_uniform_are_in_the_default_space() -> None:
    from prism_transformer.model.head_schedule import HeadSchedule

    space = SearchSettings().space(MODEL)
    for text in ("12x12", "3x2,6x2,8x2,12x6"):
        assert HeadSchedule.parse(text, d_model=768) in space
    assert HeadSchedule.parse("2x2,6x2,12x8", d_model=768) not in space  # head dim 384: no fused kernel


def test_an_empty_space_names_the_constraint_that_empties_it() -> None:
    assert "min_base_layers=13" in problems(min_base_layers=13)
    assert "boundary=True" in problems(allowed_heads=(3, 6))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_head_dim": 32, "boundary": False, "allowed_heads": (24,)}, "excludes uniform, whose head dim is 64"),
        ({"allowed_heads": (3, 6), "boundary": False}, "excludes uniform, which has 12 heads"),
    ],
)
def test_a_constraint_that_excludes_uniform_is_refused(changes: dict[str, object], said: str) -> None:
    assert said in problems(**changes)


def test_every_wrong_setting_is_named_at_once() -> None:
    said = problems(seeds=1, final_seeds=0, confidence=1.5, equivalence=-1, candidates=1, tensor_parallel=0)
    for name in ("seeds=1", "final_seeds=0", "confidence=1.5", "equivalence=-1", "candidates=1", "tensor_parallel=0"):
        assert name in said


def test_a_grid_takes_no_number_of_candidates() -> None:
    assert "a grid takes every schedule" in problems(method="grid", candidates=5)
