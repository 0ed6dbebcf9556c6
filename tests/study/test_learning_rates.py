"""Best against best, the rate of a seed chosen on the other seeds."""

import numpy as np
import pytest

from prism_transformer.study.learning_rates import best_against_best, leave_one_out, rates_of
from prism_transformer.study.measured import RunResult
from prism_transformer.study.results import analyse
from prism_transformer.study.statistics import paired_t

from .fake_study import arms, endpoint, run

TWO = ("uniform", "prism")


def at_rates(losses: dict[str, dict[float, list[float]]]) -> list[RunResult]:
    return [
        run(arm, seed, loss, lr=rate)
        for arm, of_arm in losses.items()
        for rate, of_rate in of_arm.items()
        for seed, loss in enumerate(of_rate)
    ]


def test_a_seed_has_no_say_in_its_own_rate() -> None:
    # seed 2 alone likes .002; the other seeds like .001, so seed 2 is read at .001. Seed 0 and 1 see seed 2's taste.
    runs = at_rates({"uniform": {0.001: [3.0, 3.0, 3.0], 0.002: [3.1, 3.1, 2.0]}})
    assert [chosen.lr for chosen in leave_one_out(runs)] == [0.002, 0.002, 0.001]


def test_a_rate_that_diverged_is_not_chosen_unless_all_did() -> None:
    runs = [*at_rates({"uniform": {0.001: [3.0, 3.0]}}), run("uniform", 0, 2.0, lr=0.004)]
    runs.append(run("uniform", 1, None, lr=0.004, status="diverged"))
    assert [chosen.lr for chosen in leave_one_out(runs)] == [0.001, 0.001]
    assert [chosen.lr for chosen in leave_one_out(runs[2:])] == [0.004, 0.004]


def test_each_arm_has_its_own_best_rate() -> None:
    losses = {
        "uniform": {0.001: [3.10, 3.11, 3.12], 0.002: [3.00, 3.01, 3.02]},
        "prism": {0.001: [2.95, 2.97, 2.96], 0.002: [3.30, 3.31, 3.32]},
    }
    results = analyse(arms(TWO), at_rates(losses), endpoint(3))
    assert rates_of(at_rates(losses)) == [0.001, 0.002]
    assert results["learning_rates"]["chosen"] == {"uniform": [0.002] * 3, "prism": [0.001] * 3}
    assert results["differences"]["prism"]["mean"] == pytest.approx(np.mean([-0.05, -0.04, -0.06]))
    rows = {(row["arm"], row["lr"]): row for row in results["learning_rates"]["equal_rate"]}
    assert rows["prism", 0.002]["mean"] == pytest.approx(0.30)
    assert rows["prism", 0.001]["mean"] == pytest.approx(-0.15)
    assert rows["uniform", 0.001]["mean_loss"] == pytest.approx(3.11)


def test_one_rate_is_no_choice() -> None:
    runs = at_rates({"uniform": {0.001: [3.0, 3.0]}, "prism": {0.001: [3.0, 3.0]}})
    assert analyse(arms(TWO), runs, endpoint(2))["learning_rates"] is None


def test_a_seed_without_one_of_its_rates_is_no_pair() -> None:
    losses = {arm: {0.001: [3.0, 3.1, 3.2], 0.002: [3.3, 3.4, 3.5]} for arm in TWO}
    entry = analyse(arms(TWO), at_rates(losses)[:-1], endpoint(3))["differences"]["prism"]
    assert (entry["n"], entry["left_out"]) == (2, [{"seed": 2, "arm": "prism", "status": "missing"}])
    for arm in TWO:
        losses[arm] = {rate: values[: 3 if arm == "uniform" else 2] for rate, values in losses[arm].items()}
    entry = analyse(arms(TWO), at_rates(losses), endpoint(3))["differences"]["prism"]
    assert entry["left_out"] == [{"seed": 2, "arm": "prism", "status": "missing"}], "once, though two rates lack it"


def test_best_against_best_with_one_rate_is_the_paired_interval() -> None:
    arm, other = np.random.default_rng(0).normal(size=(2, 100, 1, 5))
    ours, plain = best_against_best(arm, other, 0.95), paired_t((arm - other)[:, 0], 0.95)
    for key in ("mean", "low", "high", "p"):
        np.testing.assert_allclose(getattr(ours, key), getattr(plain, key), rtol=1e-9)


def test_best_against_best_of_clear_rates_is_bonferronis() -> None:
    """Where no rate but one comes into question, the price of having looked is alpha over the number of rates."""
    arm, other = np.random.default_rng(1).normal(size=(2, 3, 5))
    arm[1:] += 100.0
    other[:2] += 100.0
    ours, plain = best_against_best(arm, other, 0.95), paired_t(arm[0] - other[2], 1 - 0.05 / 3)
    assert (float(ours.low), float(ours.high)) == pytest.approx((float(plain.low), float(plain.high)), rel=1e-9)
    assert float(ours.p) == pytest.approx(min(1.0, 3 * float(plain.p)), rel=1e-9)


@pytest.mark.parametrize("rates", [2, 5])
@pytest.mark.parametrize("noise", [1.0, 5.0], ids=["equal noise", "one arm noisier"])
def test_best_against_best_keeps_its_promise_where_rates_are_equally_good(rates: int, noise: float) -> None:
    rng = np.random.default_rng(2)
    arm, other = rng.normal(size=(5000, rates, 5)), noise * rng.normal(size=(5000, rates, 5))
    interval = best_against_best(arm, other, 0.95)
    assert np.mean((interval.low < 0) & (interval.high > 0)) >= 0.95
    # the interval excludes zero exactly when p says so
    np.testing.assert_array_equal(interval.p < 0.05, (interval.low > 0) | (interval.high < 0))


def test_students_t_over_chosen_rates_would_not_keep_it() -> None:
    """Why the module does without it: 400 null studies of three equally good rates."""
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(400):
        losses = {arm: {rate: list(3 + rng.normal(scale=0.01, size=5)) for rate in (1e-3, 2e-3, 4e-3)} for arm in TWO}
        chosen = {(r.arm, r.seed): r.val_loss or 0.0 for r in leave_one_out(at_rates(losses))}
        false += paired_t([chosen["prism", seed] - chosen["uniform", seed] for seed in range(5)], 0.95).p < 0.05
    assert false / 400 > 0.08
