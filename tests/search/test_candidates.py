"""The references, the draw, and the place of a schedule in the picture."""

import pytest

from prism_transformer.model.head_schedule import HeadSchedule
from prism_transformer.search.candidates import choose, references, total, widening
from prism_transformer.search.settings import SearchSettings
from prism_transformer.training.recipe import ModelSettings

SPACE = SearchSettings().space(ModelSettings(layers=12, d_model=768, heads=12))
SMALL = SearchSettings().space(ModelSettings(layers=4, d_model=64, heads=4))


def test_the_references_are_uniform_the_wider_uniforms_and_prism() -> None:
    found = references(SPACE)
    assert found[0].name == "uniform" and found[0].in_space
    assert {each.name for each in found[1:]} == {"uniform-8", "uniform-6", "uniform-4", "uniform-3", "prism"}
    outside = {each.name for each in found if not each.in_space}
    assert outside == {"uniform-8", "uniform-6", "uniform-4", "uniform-3"}  # whose last layer has not the base heads


def test_a_model_without_a_legal_prism_has_none() -> None:
    space = SearchSettings().space(ModelSettings(layers=12, d_model=1600, heads=25))
    assert "prism" not in {each.name for each in references(space)}


def test_all_of_a_small_space_come_once() -> None:
    """4 layers, the last with 4 heads, the others rising over 1, 2, 4: C(3 + 2, 2) = 10; two uniforms are outside."""
    found = choose(SMALL, None, draw=0)
    assert SMALL.count == 10 and total(SMALL) == 12 and len(found) == 12
    assert len({each.schedule for each in found}) == 12


def test_a_draw_keeps_the_references_and_is_the_same_for_its_seed() -> None:
    found = choose(SPACE, 20, draw=3)
    assert len(found) == 20 and [each.name for each in found[:6]] == [each.name for each in references(SPACE)]
    assert found == choose(SPACE, 20, draw=3) != choose(SPACE, 20, draw=4)
    assert len({each.schedule for each in found}) == 20


@pytest.mark.parametrize(
    ("heads", "expected"), [("12x12", 0.0), ("6x12", 0.5), ("3x2,6x2,8x2,12x6", 1 - 106 / 144), ("6x6,12x6", 0.25)]
)
def test_widening_is_the_part_of_the_heads_that_is_gone(heads: str, expected: float) -> None:
    assert widening(HeadSchedule.parse(heads, d_model=768), 12) == pytest.approx(expected)


def test_families_are_named_by_the_shape() -> None:
    wide = SearchSettings(monotone=False, boundary=False).space(ModelSettings(layers=4, d_model=64, heads=4))
    families = {str(each.schedule): each.family for each in choose(wide, None, draw=0)}
    assert families["4x4"] == families["2x4"] == "uniform" and families["2x2,4x2"] == "1 step"
    assert families["1x1,2x1,4x2"] == "prism" and families["4x2,2x2"] == "falling"
