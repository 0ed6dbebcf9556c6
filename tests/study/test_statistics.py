"""Against SciPy's own tests, textbook tables and hand calculation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from prism_transformer.study.statistics import (
    correlation,
    detectable_difference,
    holm,
    look_alpha,
    look_confidence,
    paired_t,
    power_of,
    sd_interval,
    seeds_needed,
    welch,
)

ARM = [3.361, 3.3598, 3.3604, 3.3591]
BASELINE = [3.3748, 3.3721, 3.3775, 3.3733]


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.995])
def test_paired_t_is_the_interval_of_scipys_paired_test(confidence: float) -> None:
    ours = paired_t(np.subtract(ARM, BASELINE), confidence)
    theirs = stats.ttest_rel(ARM, BASELINE)
    interval = theirs.confidence_interval(confidence)
    assert (float(ours.low), float(ours.high)) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert float(ours.p) == pytest.approx(theirs.pvalue, rel=1e-12)


def test_paired_t_by_hand() -> None:
    # mean 2, sd 1, n 3: half width 4.302653 (the table's t of 2 degrees of freedom) x 1 / sqrt(3)
    interval = paired_t([1.0, 2.0, 3.0], 0.95)
    assert float(interval.high - interval.mean) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_paired_t_without_spread_is_sure_of_what_it_sees() -> None:
    assert [float(x) for x in paired_t([0.5, 0.5], 0.95)] == [0.5, 0.0, 0.5, 0.5, 0.0]
    assert float(paired_t([0.0, 0.0], 0.95).p) == 1.0


def test_many_studies_at_once_give_what_each_gives_alone() -> None:
    differences = np.random.default_rng(0).normal(size=(3, 4, 5))
    alone = paired_t(differences[2, 1], 0.95)
    assert paired_t(differences, 0.95).low[2, 1] == pytest.approx(float(alone.low), rel=1e-12)


def test_welch_is_scipys() -> None:
    interval = stats.ttest_ind(ARM, BASELINE, equal_var=False).confidence_interval(0.95)
    assert welch(ARM, BASELINE, 0.95) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert welch([1.0, 1.0], [3.0, 3.0], 0.95) == (-2.0, -2.0)


def test_correlation_needs_three_pairs_and_spread() -> None:
    assert correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == pytest.approx(1.0)
    assert correlation([1.0, 2.0], [2.0, 4.0]) is None
    assert correlation([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]) is None


def test_holm_by_hand() -> None:
    # sorted .01 .02 .03 .5 times 4 3 2 1, never falling: .04 .06 .06 .5
    np.testing.assert_allclose(holm([0.02, 0.5, 0.01, 0.03]), [0.06, 0.5, 0.04, 0.06], rtol=1e-12)
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])
    assert holm([]).shape == (0,)


def test_all_looks_together_spend_alpha_and_the_first_interval_is_the_plain_one() -> None:
    spent = sum(look_alpha(look, 0.95) for look in range(1, 100_000))
    assert 0.9999 * 0.05 < spent < 0.05
    assert look_alpha(1, 0.95) == pytest.approx(0.04)
    assert look_confidence(1, 0.95) == 0.95
    assert look_confidence(2, 0.95) == pytest.approx(0.995)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_seeds_needed_are_those_of_the_power_tables(effect: float, n: int) -> None:
    # paired t test, two-sided 5 %, power .8: Cohen's small, medium and large effect
    assert seeds_needed(effect, 1.0, 1.0) == (n, n)


def test_seeds_needed_is_a_range_and_has_an_end() -> None:
    low, high = seeds_needed(1.0, 0.5, 2.0)
    assert low < seeds_needed(1.0, 1.0, 1.0)[0] < high
    assert seeds_needed(1e-9, 1.0, 1.0) == (10_000, 10_000)
    assert seeds_needed(1.0, 0.0, 0.0) == (3, 3)


@pytest.mark.parametrize("n", [2, 3, 5, 34])
def test_detectable_difference_is_found_with_its_power(n: int) -> None:
    difference = detectable_difference(0.01, n)
    assert power_of(difference, 0.01, n) == pytest.approx(0.8, abs=1e-6)


def test_detectable_difference_at_the_edges() -> None:
    assert detectable_difference(1.0, 1) == math.inf
    assert detectable_difference(0.0, 3) == 0.0
    assert power_of(0.0, 1.0, 5) == pytest.approx(0.05)


def test_sd_interval_from_the_chi_square_table() -> None:
    # 9 degrees of freedom: 2.700 and 19.023
    assert sd_interval(1.0, 10) == pytest.approx((math.sqrt(9 / 19.023), math.sqrt(9 / 2.700)), rel=1e-4)


@pytest.mark.parametrize(
    ("difference", "sd"), [(0.0424, 0.0094), (0.0127, 0.0055), (0.0042, 0.0094), (0.0424, 0.0115), (0.0424, 0.0055)]
)
def test_a_wider_spread_never_needs_fewer_pairs(difference: float, sd: float) -> None:
    """Also where SciPy's noncentral t has holes: power grows with the pairs, and the needed ones with the spread."""
    low, high = seeds_needed(difference, sd, 4.8 * sd, confidence=0.995)
    assert 3 <= low <= high
    assert power_of(difference, sd, low, 0.995) >= 0.8
    powers = [power_of(difference, sd, n, 0.995) for n in range(3, 400)]
    assert all(a <= b + 1e-6 for a, b in itertools.pairwise(powers))
