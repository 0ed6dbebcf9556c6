"""Which round follows which: dropping only by what was shown, and a budget that is never overrun."""

import math
from dataclasses import replace

import pytest

from prism_transformer.errors import InputError
from prism_transformer.search.budget import Budget, Prices
from prism_transformer.search.candidates import choose
from prism_transformer.search.elimination import Judged, Standing
from prism_transformer.search.ladder import FRESH_SEEDS, Ladder, Round, affordable, ladder_of
from prism_transformer.search.settings import SearchSettings
from prism_transformer.settings import from_mapping, to_mapping
from prism_transformer.training.recipe import ModelSettings, Recipe, TrainingSettings, with_training

RECIPE = Recipe(
    model=ModelSettings(layers=4, d_model=64, heads=4),
    training=TrainingSettings(tokens=8 * 1024, tokens_per_step=1024, seed=7),
)
RUNS, TOKENS = Prices("runs", 1, 0), Prices("tokens", 1, 0)


def ladder(budget: str = "1000 runs", **changes: object) -> Ladder:
    settings = replace(SearchSettings(budget=budget, seeds=3, final_seeds=5), **changes)  # type: ignore[arg-type]
    return ladder_of(RECIPE, settings, choose(settings.space(RECIPE.model), None, draw=0))


def judged(of: Round, losses: dict[str, float], dropped: tuple[str, ...] = ()) -> Judged:
    standings = {name: Standing(loss=losses.get(name, 4.0), mean=0.0) for name in of.schedules}
    leader = min(standings, key=lambda name: standings[name].loss or 9)
    return Judged(seeds=of.seeds, leader=leader, standings=standings, dropped=dict.fromkeys(dropped, "worse"))


def test_lengths_are_quarter_half_and_whole_in_steps_of_the_recipe() -> None:
    assert ladder().lengths == (2048, 4096, 8192)
    assert ladder_of(with_training(RECIPE, tokens=1024), SearchSettings(), ()).lengths == (1024,)
    assert ladder(method="grid").lengths == (8192,)


def test_every_schedule_of_a_round_has_the_same_seeds_and_no_two_rounds_share_one() -> None:
    rules = ladder()
    first = rules.first()
    assert first.seeds == (7, 8, 9) and len(first.schedules) == 12 and len(set(first.runs)) == 36
    assert {run.seed for run in first.runs[:12]} == {7}  # seed by seed
    second = rules.after([first], [judged(first, {})], 900, RUNS)
    assert second is not None and second.seeds == (10, 11, 12)
    final = rules.final([judged(first, {"1x2,4x2": 3.0})], "2x2,4x2", 0, RUNS)
    assert final.seeds == tuple(7 + FRESH_SEEDS + k for k in range(5)) and final.stage == "final"


def test_what_is_left_goes_on_to_the_double_length() -> None:
    rules = ladder()
    first = rules.first()
    second = rules.after([first], [judged(first, {}, dropped=("prism", "uniform-2"))], 900, RUNS)
    assert second is not None and second.tokens == 4096
    assert set(first.schedules) - set(second.schedules) == {"prism", "uniform-2"}


def test_nothing_is_dropped_for_want_of_budget() -> None:
    """12 schedules: a round at 4096 takes 147,456 tokens, at 2048 73,728, and the end is laid aside."""
    rules = ladder("100M tokens")
    first, end = rules.first(), rules.end_price(TOKENS)
    assert end == 5 * 5 * 8192
    none_dropped = [judged(first, {})]
    on = rules.after([first], none_dropped, end + 147_456, TOKENS)
    assert on is not None and (on.tokens, len(on.schedules)) == (4096, 12)
    again = rules.after([first], none_dropped, end + 147_455, TOKENS)
    assert again is not None and (again.tokens, len(again.schedules), again.seeds) == (2048, 12, (10, 11, 12))
    assert rules.after([first], none_dropped, end + 73_727, TOKENS) is None


def test_how_far_a_search_comes_that_drops_nothing() -> None:
    """12 schedules x 3 seeds are 36 runs a round, the end is 25: 97 runs carry two rounds, 132 not quite three."""
    assert [each.tokens for each in ladder("97 runs").undropped(RUNS)] == [2048, 4096]
    assert [each.tokens for each in ladder("132 runs").undropped(RUNS)] == [2048, 4096]
    assert [each.tokens for each in ladder("133 runs").undropped(RUNS)] == [2048, 4096, 8192]
    assert [each.tokens for each in ladder("96 runs").undropped(RUNS)] == [2048]


def test_at_full_length_more_seeds_are_added_and_one_schedule_ends_the_search() -> None:
    rules = ladder()
    whole = Round(stage="search", tokens=8192, seeds=(7, 8, 9), schedules=("uniform", "2x2,4x2"))
    more = rules.after([whole], [judged(whole, {})], 900, RUNS)
    assert more is not None and (more.tokens, more.seeds) == (8192, (10, 11, 12))
    alone = Round(stage="search", tokens=2048, seeds=(7, 8, 9), schedules=("uniform", "uniform-2"))
    assert rules.after([alone], [judged(alone, {})], 900, RUNS) is None  # uniform-2 cannot be chosen


def test_uniform_goes_on_where_it_is_worse_and_does_not_count_as_a_choice() -> None:
    rules = ladder()
    whole = Round(stage="search", tokens=8192, seeds=(7, 8, 9), schedules=("uniform", "2x2,4x2", "1x2,4x2"))
    found = judged(whole, {"2x2,4x2": 3.0, "1x2,4x2": 3.1})
    standings = {**found.standings, "uniform": Standing(loss=4.0, mean=0.0, is_worse=True)}
    on = rules.after([whole], [replace(found, standings=standings)], 900, RUNS)
    assert on is not None and on.schedules == whole.schedules
    alone = replace(found, standings=standings, dropped={"1x2,4x2": "worse"})
    assert rules.after([whole], [alone], 900, RUNS) is None


def test_a_grid_is_one_round() -> None:
    rules = ladder(method="grid")
    first = rules.first()
    assert rules.after([first], [judged(first, {})], 900, RUNS) is None


def test_the_end_compares_the_winner_the_recommended_uniform_the_best_wider_uniform_and_prism() -> None:
    rules = ladder()
    first = rules.first()
    losses = {"1x3,4x1": 3.0, "2x3,4x1": 3.1, "uniform-2": 3.2, "uniform-1": 3.3}
    final = rules.final([judged(first, losses, dropped=("uniform-2", "prism"))], "2x3,4x1", 0, RUNS)
    assert final.schedules == ("uniform", "2x3,4x1", "1x3,4x1", "uniform-2", "prism")
    assert len(final.runs) <= rules.end_price(RUNS)


@pytest.mark.parametrize(("left", "seeds"), [(25, 5), (33, 5), (34, 6), (50, 9), (56, 10), (900, 10), (math.inf, 5)])
def test_what_is_left_of_the_budget_gives_the_end_up_to_twice_its_seeds(left: float, seeds: int) -> None:
    """5 schedules, so 5 runs a seed; a tenth of what is left is spared: 34 runs are 6.1 seeds, 56 are 10.08."""
    rules = ladder()
    first = rules.first()
    losses = {"1x3,4x1": 3.0, "2x3,4x1": 3.1, "uniform-2": 3.2}
    assert len(rules.final([judged(first, losses)], "2x3,4x1", left, RUNS).seeds) == seeds


def test_a_round_is_the_same_after_it_was_written_down() -> None:
    first = ladder().first()
    assert from_mapping(Round, to_mapping(first), where="round") == first


def test_as_many_schedules_as_the_budget_carries_when_each_round_drops_half() -> None:
    """3 seeds of n, n/2, n/4 schedules, and 25 runs at the end: 12 need 36 + 18 + 9 + 25 = 88 runs, 10 need 78."""
    rules = ladder()
    few = replace(rules, candidates=rules.candidates[:4])
    assert affordable(replace(few, budget=Budget("runs", 88)), RUNS, 12) == 12
    assert affordable(replace(few, budget=Budget("runs", 87)), RUNS, 12) == 11
    assert affordable(replace(few, budget=Budget("runs", 1000)), RUNS, 12) == 12


def test_a_budget_below_the_first_round_says_what_one_run_costs() -> None:
    rules = ladder("10 runs")
    with pytest.raises(InputError, match=r"one run takes 1 run, the first round of 12 schedules 36 runs"):
        affordable(rules, RUNS, 12)
    rules = ladder("1s")
    with pytest.raises(InputError, match=r"budget 1 s is too small: one run takes 82 s"):
        affordable(rules, Prices("seconds", 100, 0), 12)
