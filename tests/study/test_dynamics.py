"""When a loss is reached, by curves whose crossings are known."""

import math

import numpy as np
import pytest
from scipy import stats

from prism_transformer.study.dynamics import default_levels, first_reached, milestone, milestones
from prism_transformer.study.measured import Evaluation

# (step, tokens, seconds, loss); the loss falls by 1 with every factor e of the tokens
CURVE = [
    Evaluation(10, 1000, 5.0, 6.0),
    Evaluation(20, 2000, 10.0, 6.0 - math.log(2)),
    Evaluation(40, 4000, 20.0, 6.0 - math.log(4)),
]


def curve(start: float, *, speed: float = 1.0) -> list[Evaluation]:
    """Losses of start - ln(tokens / 1000) at eight evaluations."""
    return [Evaluation(k, 1000 * k, 2.0 * k / speed, start - math.log(k)) for k in range(1, 9)]


def test_between_two_evaluations_the_loss_falls_with_the_logarithm_of_the_tokens():
    found = first_reached(CURVE, 6.0 - math.log(3))
    assert found.tokens == pytest.approx(3000)
    assert (found.step, found.seconds) == (pytest.approx(30), pytest.approx(15))


def test_reached_at_an_evaluation_at_once_or_never():
    assert first_reached(CURVE, 6.0) == (10, 1000, 5.0)
    assert first_reached(CURVE, 7.0) == (10, 1000, 5.0)
    assert first_reached(CURVE, 1.0) is None
    assert first_reached([], 1.0) is None


def test_first_means_first():
    """A loss that rises again afterwards was reached all the same."""
    bumpy = [Evaluation(k, 100 * k, float(k), loss) for k, loss in enumerate((5.0, 4.0, 4.5, 3.9), start=1)]
    assert first_reached(bumpy, 4.0) == pytest.approx((2, 200, 2.0))


def test_a_known_saving_is_found_with_its_interval():
    """Arms whose losses lie ln(f) lower reach everything with 1/f of the tokens."""
    factors = [1.10, 1.12, 1.15]
    base = {seed: curve(6.0 + seed / 10) for seed in range(3)}
    arm = {seed: curve(6.0 + seed / 10 - math.log(f)) for seed, f in enumerate(factors)}
    entry = milestone(4.5, {"u": base, "p": arm}, baseline="u", confidence=0.95)
    tokens = entry["differences"]["p"]["tokens"]
    logs = [-math.log(f) for f in factors]
    assert tokens["factor"] == pytest.approx(math.exp(np.mean(logs)))
    interval = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert (tokens["low"], tokens["high"]) == (
        pytest.approx(math.exp(interval.low)),
        pytest.approx(math.exp(interval.high)),
    )
    assert tokens["n"] == 3 and entry["arms"]["u"]["reached"] == [0, 1, 2]
    assert entry["arms"]["p"]["tokens"] < entry["arms"]["u"]["tokens"]


def test_seconds_count_the_speed_too():
    base, arm = {s: curve(6.0) for s in (0, 1)}, {s: curve(6.0, speed=2.0) for s in (0, 1)}
    entry = milestone(4.5, {"u": base, "p": arm}, baseline="u", confidence=0.95)
    assert entry["differences"]["p"]["tokens"]["factor"] == pytest.approx(1.0)
    assert entry["differences"]["p"]["seconds"]["factor"] == pytest.approx(0.5)


def test_runs_that_never_got_there_are_left_out_and_counted():
    base = {0: curve(6.0), 1: curve(6.0), 2: curve(6.0)}
    arm = {0: curve(5.9), 1: curve(9.0), 2: curve(9.0)}
    entry = milestone(4.5, {"u": base, "p": arm}, baseline="u", confidence=0.95)
    assert entry["arms"]["p"]["reached"] == [0] and entry["arms"]["p"]["runs"] == 3
    assert entry["differences"]["p"] == {"tokens": None, "seconds": None}
    never = milestone(0.5, {"u": base, "p": arm}, baseline="u", confidence=0.95)
    assert never["arms"]["u"] == {"runs": 3, "reached": [], "step": None, "tokens": None, "seconds": None}


def test_default_levels_are_round_and_reached_by_all():
    base, arm = {0: curve(6.0), 1: curve(6.05)}, {0: curve(5.9), 1: curve(6.1)}
    levels = default_levels(base, [base, arm])
    assert 3 <= len(levels) <= 6 and levels == sorted(levels, reverse=True)
    assert all(level == round(level, 2) for level in levels)
    assert min(levels) >= 6.1 - math.log(8)  # the worst run's last loss
    assert max(levels) <= 6.0 - math.log(3)  # the baseline's at a third of its tokens


def test_no_levels_without_a_curve():
    assert default_levels({0: [(1, 10, 1.0, 5.0)]}, [{0: [(1, 10, 1.0, 5.0)]}]) == []
    assert milestones({"u": {}, "p": {}}, baseline="u", confidence=0.95) == []
