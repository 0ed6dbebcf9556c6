"""Paired statistics by hand calculation, and by simulated models whose true difference is known."""

import numpy as np
import pytest
from scipy import stats

from prism_transformer.evaluation.paired_items import mcnemar, paired_difference


def test_mcnemar_counts_only_the_items_on_which_the_models_differ():
    first = [1] * 8 + [0] + [1] * 50 + [0] * 50
    second = [0] * 8 + [1] + [1] * 50 + [0] * 50
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (8, 1)
    assert found.p == pytest.approx(2 * (1 + 9) / 2**9)  # P(<= 1 of 9) both ways


def test_mcnemar_of_equal_models_tells_nothing():
    assert mcnemar([1, 0, 1], [1, 0, 1]).p == 1.0


def test_one_seed_is_the_plain_paired_interval():
    values = np.random.default_rng(0).normal(0.1, 1.0, 400)
    found = paired_difference(values)
    plain = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


def test_weights_make_a_ratio_of_sums():
    nats, words = np.array([2.0, 9.0, 4.0]), np.array([1.0, 3.0, 1.0])
    assert paired_difference(nats, words).mean == pytest.approx(15 / 5)


def test_a_difference_that_is_the_same_on_every_item_is_certain():
    found = paired_difference(np.full((3, 20), 0.5))
    assert found == (0.5, 0.5, 0.5, 0.0)
    assert paired_difference(np.zeros((3, 20))).p == 1.0


def test_three_seeds_that_disagree_cannot_tell():
    """Each seed alone is sure of its own difference; together they are not: items are not the only chance."""
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 1000))
    values = np.array([[0.05], [-0.02], [0.03]]) + noise
    assert all(paired_difference(row).p < 1e-6 for row in values)
    assert paired_difference(values).low < 0 < paired_difference(values).high


@pytest.mark.parametrize(
    ("seeds", "of_seeds", "of_items", "of_both"), [(1, 0.0, 0.2, 0.3), (3, 0.02, 0.2, 0.3), (5, 0.05, 0.1, 0.3)]
)
def test_the_interval_holds_a_known_difference_as_often_as_it_says(seeds, of_seeds, of_items, of_both):
    random = np.random.default_rng(7)
    truth, items, studies, inside = 0.03, 200, 2000, 0
    for _ in range(studies):
        values = (
            truth
            + random.normal(0, of_seeds, (seeds, 1))
            + random.normal(0, of_items, (1, items))
            + random.normal(0, of_both, (seeds, items))
        )
        found = paired_difference(values)
        inside += found.low <= truth <= found.high
    assert inside / studies >= 0.935  # 95 % less three standard errors of 2000 studies
    if seeds == 1:
        assert inside / studies <= 0.965  # and with one seed it is exact: nothing counts twice


def test_pairing_finds_what_independent_samples_hide():
    """1,838 items, 5 % of which only the better model gets right, 2 % only the other one."""
    n = 1838
    hard = np.random.default_rng(0).permutation(n)
    first, second = np.ones(n), np.ones(n)
    first[hard[: n * 40 // 100]] = second[hard[: n * 40 // 100]] = 0
    first[hard[-n * 5 // 100 :]] = 0
    second[hard[n // 2 : n // 2 + n * 2 // 100]] = 0
    assert mcnemar(second, first).p < 1e-5
    assert paired_difference(second - first).low > 0
    assert stats.ttest_ind(second, first).pvalue > 0.05  # the same numbers, taken as independent
