"""The paper's numbers as they are printed agree with each other; the arms are those schedules."""

import pytest

from prism_transformer.errors import InputError
from prism_transformer.reproduce.paper import ABLATION, LOSSES, ZERO_SHOT
from prism_transformer.reproduce.scoring import TASKS
from prism_transformer.reproduce.targets import TARGETS, find_targets, load_scale, study_settings
from prism_transformer.study.arms import parse_arms

HEADS = {  # as the paper prints them (section 4)
    "3x1,6x1,8x1,12x9": [3, 6, 8] + [12] * 9,
    "6x2,8x2,12x8": [6, 6, 8, 8] + [12] * 8,
    "4x2,8x2,12x8": [4, 4, 8, 8] + [12] * 8,
    "6x4,12x8": [6] * 4 + [12] * 8,
    "2x1,4x1,6x1,8x1,12x8": [2, 4, 6, 8] + [12] * 8,
    "3x2,6x2,12x8": [3, 3, 6, 6] + [12] * 8,
    "prism": [3, 3, 6, 6, 8, 8] + [12] * 6,
    "2x2,4x2,8x2,12x6": [2, 2, 4, 4, 8, 8] + [12] * 6,
}


def test_improvements_are_the_differences_of_the_losses_but_for_rounding() -> None:
    uniform = LOSSES["small"]["uniform"].mean
    for row in ABLATION.values():
        assert uniform - row.loss == pytest.approx(row.improvement, abs=1.01e-4)
    assert ABLATION["prism"].loss == LOSSES["small"]["prism"].mean


@pytest.mark.parametrize(("scale", "gap"), [("small", -0.0144), ("medium", -0.0071), ("large", -0.0084)])
def test_gaps_are_the_paper_s(scale: str, gap: float) -> None:
    stated = LOSSES[scale]
    assert stated["prism"].mean - stated["uniform"].mean == pytest.approx(gap, abs=1e-9)
    assert set(ZERO_SHOT[scale]) == set(TASKS)


@pytest.mark.parametrize("scale", ["small", "rehearsal"])
def test_the_ablation_s_arms_are_its_eight_rows_and_uniform(scale: str) -> None:
    recipe = load_scale(scale)
    settings = study_settings(TARGETS["ablation"], recipe, seeds=None, jobs=None)
    arms = {arm.name: list(arm.schedule.heads) for arm in parse_arms(settings.arms, recipe.recipe.model)}
    assert arms.pop("uniform") == [12] * 12
    assert arms == HEADS
    assert set(ABLATION) == set(HEADS)
    assert settings.seeds == {"small": 3, "rehearsal": 2}[scale]


@pytest.mark.parametrize(
    ("scale", "uniforms"),
    [("small", [12, 3, 4, 6, 8]), ("medium", [16, 4, 8]), ("large", [16, 6, 8, 12])],
)
def test_the_controls_are_every_uniform_n_up_to_256_dimensions_and_prism_in_other_orders(
    scale: str, uniforms: list[int]
) -> None:
    """Head dims that divide d_model, even, from the base's to 256: by hand for 768, 1024 and 1536."""
    recipe = load_scale(scale)
    settings = study_settings(TARGETS["controls"], recipe, seeds=None, jobs=None)
    arms = {arm.name: arm.schedule.heads for arm in parse_arms(settings.arms, recipe.recipe.model)}
    found = [heads[0] for heads in arms.values() if len(set(heads)) == 1]
    assert sorted(found) == sorted(uniforms)
    for name in ("reversed", "shuffled-1", "shuffled-2"):
        assert sorted(arms[name]) == sorted(arms["prism"]) and arms[name] != arms["prism"]
    assert arms["reversed"] == arms["prism"][::-1]


def test_all_is_every_target_that_a_scale_has() -> None:
    assert [target.name for target in find_targets(["all"], "small")] == list(TARGETS)
    assert "ablation" not in [target.name for target in find_targets(["all"], "large")]


def test_the_zero_shot_table_is_that_of_the_losses_runs() -> None:
    assert find_targets(["table3"], "large") == find_targets(["table2"], "large") == [TARGETS["table2"]]
    assert find_targets(["table3", "attention", "table2"], "small") == [TARGETS["table2"], TARGETS["attention"]]


@pytest.mark.parametrize(
    ("names", "scale", "expected"),
    [
        (["tabel2"], "small", "did you mean 'table2'"),
        (["table2"], "smal", "did you mean 'small'"),
        ([], "small", "name what to reproduce"),
        (["ablation"], "medium", "ablation is of the small model"),
    ],
)
def test_what_cannot_be_is_named(names: list[str], scale: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        find_targets(names, scale)
