"""Differences by document, by hand and by a planted truth."""

import math

import numpy as np
import pytest
from scipy import stats

from prism_transformer.study.documents import document_differences
from prism_transformer.study.measured import Documents

TOKENS = [10, 30, 60]


def test_by_hand():
    base = {0: Documents([20, 60, 120], TOKENS), 1: Documents([22, 61, 125], TOKENS), 2: Documents([1, 1, 1], TOKENS)}
    arm = {0: Documents([19, 62, 117], TOKENS), 1: Documents([19, 65, 120], TOKENS)}
    found = document_differences({"u": base, "p": arm}, baseline="u", confidence=0.95)
    # over seeds 0 and 1: -2, +3, -4 nats of 100 tokens
    assert found == {
        "p": {"seeds": [0, 1], "documents": 3, "lower": 2 / 3, "mean": pytest.approx(-0.03), "low": None, "high": None}
    }


def test_documents_of_equal_length_give_the_interval_of_a_mean():
    differences = np.random.default_rng(0).normal(0.1, 1.0, 40)
    base = {0: Documents([100.0] * 40, [20] * 40)}
    arm = {0: Documents(list(100.0 + differences), [20] * 40)}
    entry = document_differences({"u": base, "p": arm}, baseline="u", confidence=0.9)["p"]
    expected = stats.ttest_1samp(differences / 20, 0).confidence_interval(0.9)
    assert (entry["low"], entry["high"]) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_documents_of_unequal_length_cover_the_truth():
    """A token differs by -0.02 plus what its document adds: the interval holds -0.02 in 95 % of texts."""
    random, covered = np.random.default_rng(1), 0
    for _ in range(600):
        tokens = random.integers(50, 150, 60)
        nats = tokens * (-0.02 + random.normal(0, 0.1, 60))
        base = {0: Documents([0.0] * 60, list(tokens))}
        entry = document_differences(
            {"u": base, "p": {0: Documents(list(nats), list(tokens))}}, baseline="u", confidence=0.95
        )["p"]
        covered += entry["low"] <= -0.02 <= entry["high"]
    assert abs(covered / 600 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 600)


def test_runs_that_do_not_tell_documents_have_no_entry():
    assert document_differences({"u": {}, "p": {}}, baseline="u", confidence=0.95) == {}
