"""Against planted truths: power laws whose answer is known in closed form, and simulated noise."""

import math

import numpy as np
import pytest
from scipy import stats

from prism_transformer.study.equivalent_tokens import (
    baseline_slopes,
    equal_time,
    equivalent_tokens,
    ratio_interval,
    slope_along_curve,
    slope_between_runs,
)
from prism_transformer.study.results import analyse

from . import fake_study

TOKENS = 2_000_000


def power_law(tokens: float) -> float:
    """The loss of a whole run on so many tokens: 2.8 + 7 T^-.15."""
    return 2.8 + 7 * tokens**-0.15


@pytest.mark.parametrize("factor", [0.95, 0.992, 1.01, 1.06])
def test_a_planted_factor_is_recovered_from_the_calibration(factor: float) -> None:
    fewer = (power_law(0.8 * TOKENS), round(0.8 * TOKENS))
    loss, arm = power_law(TOKENS), power_law(factor * TOKENS)
    slopes, source = baseline_slopes({0: loss, 1: loss}, {0: fewer, 1: fewer}, TOKENS, {})
    found = equivalent_tokens({0: arm - loss, 1: arm - loss}, slopes, source, 0.95)
    assert found is not None and found["source"] == "calibration" and found["trusted"]
    assert math.log(found["factor"]) == pytest.approx(math.log(factor), rel=0.05)


def test_a_planted_factor_is_recovered_from_the_curve() -> None:
    """Where the learning rate is constant, the curve of a run is the loss of shorter runs."""
    tokens = np.linspace(0.05, 1, 20) * TOKENS
    curve = [(int(t), power_law(t)) for t in tokens]
    slopes, source = baseline_slopes({0: power_law(TOKENS)}, {}, TOKENS, {0: curve})
    found = equivalent_tokens({0: power_law(0.97 * TOKENS) - power_law(TOKENS)}, slopes, source, 0.95)
    assert found is not None and found["source"] == "curve" and found["low"] is None
    assert math.log(found["factor"]) == pytest.approx(math.log(0.97), rel=0.1)


def test_the_interval_covers_a_planted_factor_in_95_percent_of_studies() -> None:
    rng = np.random.default_rng(0)
    studies, seeds, truth = 4000, 5, math.log(0.992)
    covered = 0
    for _ in range(studies):
        base, arm, fewer = rng.normal(scale=0.004, size=seeds) + rng.normal(scale=0.003, size=(3, seeds))
        slopes = (fewer - base - 0.45 * math.log(0.8)) / math.log(0.8)
        interval = ratio_interval(arm - base - 0.45 * truth, slopes, 0.95)
        covered += interval is not None and interval[0] < truth < interval[1]
    assert 0.93 < covered / studies < 0.97


def test_ratio_interval_is_where_a_paired_t_test_turns() -> None:
    a, b = np.array([0.9, 1.3, 1.2, 0.7]), np.array([2.1, 2.6, 2.2, 1.9])
    interval = ratio_interval(a, b, 0.95)
    assert interval is not None
    for end in interval:
        assert stats.ttest_1samp(a - end * b, 0.0).pvalue == pytest.approx(0.05, rel=1e-6)


def test_no_interval_where_the_slope_itself_may_be_zero() -> None:
    assert ratio_interval([1.0, 1.1, 0.9], [-1.0, 1.5, 0.2], 0.95) is None
    assert ratio_interval([1.0], [2.0], 0.95) is None


def test_slopes_by_hand() -> None:
    assert slope_between_runs(4.0, 3.9, 80, 100) == pytest.approx(0.1 / math.log(0.8))
    # straight in ln(tokens): the first half, far off the line, is left out
    tokens = np.array([10.0, 60.0, 80.0, 100.0])
    assert slope_along_curve(tokens, np.array([99.0, *(-0.5 * np.log(tokens[1:]))])) == pytest.approx(-0.5)
    assert slope_along_curve([50, 100], [4.0, 3.9]) is None
    assert slope_along_curve([], []) is None


def test_a_loss_that_does_not_fall_gives_no_tokens() -> None:
    assert equivalent_tokens({0: 0.1, 1: 0.1}, {0: 0.2, 1: 0.2}, "curve", 0.95) is None
    assert equivalent_tokens({}, {0: -0.2}, "curve", 0.95) is None


def test_a_factor_beyond_the_local_slope_is_not_trusted() -> None:
    found = equivalent_tokens({0: -1.0, 1: -1.1}, {0: -0.45, 1: -0.46}, "calibration", 0.95)
    assert found is not None and not found["trusted"]


def test_equal_time_by_hand() -> None:
    # twice as fast: ln 2 more, worth .45 x .6931 nats, against .1 that the arm loses at equal tokens
    found = equal_time({0: 0.1, 1: 0.1}, {0: -0.45, 1: -0.45}, {0: 2.0, 1: 2.0}, "calibration", 0.95)
    assert found is not None
    assert found["mean"] == pytest.approx(0.1 - 0.45 * math.log(2))
    assert found["speed_ratio"] == pytest.approx(2.0)
    assert equal_time({0: 0.1}, {0: -0.45}, {}, "calibration", 0.95) is None


def test_a_whole_study_recovers_what_was_planted() -> None:
    worse = -fake_study.SLOPE * 0.03
    runs = fake_study.runs(10, effects={"prism": worse}, sd_run=0.0005)
    entry = analyse(fake_study.arms(), runs, fake_study.endpoint(10))["differences"]["prism"]
    tokens = entry["equivalent_tokens"]
    assert tokens["low"] < math.exp(-0.03) < tokens["high"]
    assert tokens["high"] - tokens["low"] < 0.01
    # prism was planted 5 % faster: at equal time it wins back more than it loses
    assert entry["decision"] == "higher" and entry["equal_time"]["high"] < 0
