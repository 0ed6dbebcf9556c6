"""What a round drops: known effects, and promises held in thousands of made-up searches."""

import numpy as np
import pytest
from scipy import stats

from prism_transformer.search.elimination import Judged, judge_round, order, round_alpha, shown_worse
from prism_transformer.settings import from_mapping, to_mapping

SEARCHES = 400


def table(losses: dict[str, list[float | None]]) -> dict[str, dict[int, float | None]]:
    return {name: dict(enumerate(values)) for name, values in losses.items()}


def judge(losses: dict[str, list[float | None]], number: int = 1, **changes: object) -> Judged:
    settings = {"number": number, "baseline": "uniform", "eligible": set(losses), "confidence": 0.95} | changes
    return judge_round(table(losses), **settings)  # type: ignore[arg-type]


def test_differences_are_paired_and_the_spread_is_that_of_the_whole_table() -> None:
    """a - uniform is -.08, -.10, -.12: a spread of .02, which is more than the pooled one."""
    found = judge({"uniform": [4.0, 5.0, 6.0], "a": [3.92, 4.90, 5.88], "b": [4.1, 5.1, 6.1]})
    assert found.seeds == (0, 1, 2) and found.leader == "a"
    a = found.standings["a"]
    assert a.mean == pytest.approx(-0.1) and a.behind == 0
    noise = np.array([[4.0, 5.0, 6.0], [3.92, 4.90, 5.88], [4.1, 5.1, 6.1]])
    noise = noise - noise.mean(1, keepdims=True) - noise.mean(0) + noise.mean()
    assert 2 * (noise**2).sum() / 4 < 0.02**2
    half = stats.t.ppf(1 - 0.05 / 2 / 2, 4) * 0.02 / np.sqrt(3)
    assert (a.low, a.high) == pytest.approx((-0.1 - half, -0.1 + half))


def test_what_a_round_can_show_is_said() -> None:
    """Without the means of rows and columns, (-.01, .01), (0, 0) and (.01, -.01) are left, of 2 degrees of freedom.

    So the spread of a difference is sqrt(2 * 4 * .01^2 / 2) = .02: as of the three pairs, whose variances are .0002,
    .0002 and .0008.
    """
    found = judge({"uniform": [4.00, 5.02], "a": [4.0, 5.0], "b": [4.06, 5.04]})
    level = 0.05 / (1 * 2) / 2  # half of it all in the first round, over two others
    assert found.drops_from == pytest.approx(stats.t.ppf(1 - level, 2) * 0.02 / np.sqrt(2))
    assert judge({"uniform": [4.0], "a": [1.0]}).drops_from is None


def test_the_baseline_may_come_back_with_longer_runs() -> None:
    """Behind at a quarter of the tokens and in front of all at half of them: the word of the first round is gone."""
    early = judge({"uniform": [4.2, 4.3, 4.1], "a": [4.0, 4.1, 3.9001]})
    late = judge({"uniform": [3.5, 3.6, 3.4], "a": [3.8, 3.9, 3.7001]}, number=2)
    assert shown_worse([early]) == {"uniform"}
    assert shown_worse([early, late]) == {"a"}


def test_a_schedule_far_behind_is_dropped_and_the_baseline_never() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(scale=0.1, size=3)
    losses = {
        name: list(shift + shared + rng.normal(scale=0.001, size=3))
        for name, shift in {"uniform": 4.05, "good": 4.0, "near": 4.0005, "bad": 4.1}.items()
    }
    found = judge(losses)
    assert set(found.dropped) == {"bad"} and found.dropped["bad"].startswith(f"worse than {found.leader} by ")


def test_uniform_is_told_as_worse_and_goes_on() -> None:
    losses = {"uniform": [4.0, 4.1, 4.2], "a": [3.0, 3.1001, 3.2], "b": [3.0, 3.1002, 3.1999]}
    found = judge(losses)
    assert not found.dropped and shown_worse([found]) == {"uniform"} and found.standings["uniform"].is_worse


def test_the_leader_is_one_that_may_be_chosen() -> None:
    losses = {"uniform": [4.0, 4.1], "outside": [3.0, 3.1], "inside": [3.9, 4.01]}
    assert judge(losses, eligible={"uniform", "inside"}).leader == "inside"


def test_a_diverged_run_drops_its_schedule_and_a_seed_on_which_uniform_diverged_does_not_count() -> None:
    found = judge({"uniform": [4.0, 4.1, None], "a": [3.9, 4.0, None], "b": [3.9, None, 4.0]})
    assert found.dropped == {"b": "diverged with seed 1"}
    assert found.seeds == (0, 1) and found.standings["b"].loss is None


def test_runs_that_are_missing_leave_the_whole_pairs() -> None:
    losses = table({"uniform": [4.0, 4.1, 4.2], "a": [3.9, 4.0]})
    found = judge_round(losses, number=1, baseline="uniform", eligible={"uniform", "a"}, confidence=0.95)
    assert found.seeds == (0, 1)


def test_one_seed_tells_nothing() -> None:
    found = judge({"uniform": [4.0], "a": [1.0]})
    assert not found.dropped and found.leader == "a" and found.standings["a"].low is None


def test_nothing_finished_has_no_leader() -> None:
    assert judge({"uniform": [], "a": []}).leader is None


def test_the_chances_of_all_rounds_sum_to_no_more_than_one_in_twenty() -> None:
    assert sum(round_alpha(k, 0.95) for k in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("noisy", [1.0, 2.0], ids=["equal noise", "the best is noisier"])
def test_the_best_is_lost_in_one_of_twenty_searches_at_the_most(noisy: float) -> None:
    """30 equal schedules but one, which is better by a third of the noise of a run; three rounds of three seeds."""
    rng = np.random.default_rng(1)
    lost = 0
    for _ in range(SEARCHES):
        names = ["uniform", "best", *(f"s{k}" for k in range(28))]
        for number in (1, 2, 3):
            shared = rng.normal(scale=0.01, size=3)
            losses = {}
            for name in names:
                noise = rng.normal(scale=0.003 * (noisy if name == "best" else 1), size=3)
                losses[name] = list(4.0 - 0.001 * (name == "best") + shared + noise)
            found = judge(losses, number)
            names = [name for name in names if name not in found.dropped]
            if "best" in found.dropped:
                lost += 1
                break
    assert lost / SEARCHES <= 0.05


def test_a_difference_worth_having_is_found_with_three_seeds() -> None:
    """Of 28 schedules behind by ten standard errors of a run, a round of three seeds drops nearly all."""
    rng = np.random.default_rng(2)
    losses = {
        name: list(4.0 + rng.normal(scale=0.003, size=3) + (0.03 if name.startswith("s") else 0))
        for name in ["uniform", "a", *(f"s{k}" for k in range(28))]
    }
    found = judge(losses)
    assert len(found.dropped) >= 26 and not {"uniform", "a"} & set(found.dropped)


def test_the_ranking_goes_by_the_last_round_then_by_its_loss() -> None:
    first = judge({"uniform": [4.0, 4.1], "a": [3.9, 4.0], "b": [3.0, 3.1]})
    second = judge({"uniform": [3.5, 3.6], "a": [3.4, 3.5]}, number=2)
    assert order(["uniform", "a", "b", "never"], [first, second]) == ["a", "uniform", "b", "never"]


def test_a_judgement_is_the_same_after_it_was_written_down() -> None:
    import json

    found = judge({"uniform": [4.0, 4.1, 4.3], "a": [3.9, 4.0, 4.2], "b": [3.9, None, 4.0]})
    assert from_mapping(Judged, json.loads(json.dumps(to_mapping(found))), where="judged") == found


def test_a_calm_pair_is_judged_by_the_spread_of_the_table() -> None:
    """Two schedules that differ by .002 with every seed are not told apart where others scatter by .1."""
    rng = np.random.default_rng(3)
    losses = {f"s{k}": list(5 + rng.normal(scale=0.1, size=3)) for k in range(10)}
    losses |= {"uniform": [4.0, 4.1, 4.2], "a": [3.998, 4.098, 4.198]}
    found = judge(losses)
    low, high = found.standings["a"].low, found.standings["a"].high
    assert low is not None and high is not None and low < -0.1 < 0.1 < high
