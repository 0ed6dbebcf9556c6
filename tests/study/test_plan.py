"""The plan: which runs in which order, and settings that cannot be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.errors import InputError
from prism_transformer.study.arms import parse_arms
from prism_transformer.study.plan import RunKey, StudySettings, order_runs, planned_tokens
from prism_transformer.training.recipe import Recipe, TrainingSettings

NAMES = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=6, unique=True)
SEEDS = st.integers(0, 100).flatmap(lambda first: st.integers(1, 8).map(lambda n: list(range(first, first + n))))
RATES = st.lists(st.floats(1e-5, 1.0), min_size=1, max_size=3, unique=True)


def test_seed_by_seed_with_the_arms_rotated() -> None:
    assert order_runs(["a", "b", "c"], [5, 6], [0.1]) == [
        *(RunKey("a", 5, 0.1), RunKey("b", 5, 0.1), RunKey("c", 5, 0.1)),
        *(RunKey("b", 6, 0.1), RunKey("c", 6, 0.1), RunKey("a", 6, 0.1)),
    ]


@given(NAMES, SEEDS, RATES)
def test_each_run_is_there_once_and_a_prefix_holds_whole_seeds(
    names: list[str], seeds: list[int], rates: list[float]
) -> None:
    runs = order_runs(names, seeds, rates)
    assert sorted(runs) == sorted(RunKey(arm, seed, rate) for arm in names for seed in seeds for rate in rates)
    of_a_seed = len(names) * len(rates)
    for stop in range(len(runs) + 1):  # where an interruption may come
        begun = [run.seed for run in runs[:stop]]
        assert all(begun.count(seed) == of_a_seed for seed in seeds[: stop // of_a_seed])
        assert len(set(begun)) <= stop // of_a_seed + 1


@given(NAMES, st.integers(1, 3))
def test_each_arm_takes_each_place_equally_often(names: list[str], rounds: int) -> None:
    runs = order_runs(names, range(rounds * len(names)), [0.1])
    places = [(run.arm, index % len(names)) for index, run in enumerate(runs)]
    assert all(places.count((arm, place)) == rounds for arm in names for place in range(len(names)))


@given(NAMES, SEEDS, RATES)
def test_more_seeds_leave_the_order_of_the_first_ones(names: list[str], seeds: list[int], rates: list[float]) -> None:
    longer = order_runs(names, [*seeds, seeds[-1] + 1], rates)
    assert longer[: len(names) * len(seeds) * len(rates)] == order_runs(names, seeds, rates)


def test_planned_tokens_count_the_calibration_with_its_own() -> None:
    recipe = Recipe(training=TrainingSettings(tokens=1005, tokens_per_step=10))  # 100 whole steps
    arms = parse_arms(["prism"], recipe.model, calibrate=True)
    runs = order_runs([arm.name for arm in arms], range(3), [0.1, 0.2])
    assert planned_tokens(arms, recipe, runs) == 3 * 2 * (1000 + 1000 + 800 + 1000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "seeds=0: a study needs at least 1 seed, and 3 to show anything"),
        ({"seeds": -2}, "seeds=-2"),
        ({"lr": (1e-3, -1.0)}, "lr=-1.0 must be above 0"),
        ({"lr": (float("nan"),)}, "lr=nan must be above 0"),
        ({"lr": (1e-3, 1e-3)}, "has a rate twice"),
        ({"confidence": 1.0}, "confidence=1.0 is not between 0.5 and 1"),
        ({"confidence": float("nan")}, "confidence=nan"),
        ({"equivalence": -0.1}, "equivalence=-0.1"),
        ({"jobs": 0}, "jobs=0 must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_named(changes: dict[str, object], message: str) -> None:
    StudySettings().check()
    with pytest.raises(InputError) as caught:
        replace(StudySettings(), **changes).check()
    assert message in str(caught.value)


def test_all_of_them_at_once() -> None:
    with pytest.raises(InputError) as caught:
        StudySettings(seeds=0, lr=(-1.0,), confidence=2.0, equivalence=5.0, jobs=-1).check()
    assert len(caught.value.problems) == 5
