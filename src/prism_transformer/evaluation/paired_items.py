"""Two models on the same items: paired, never as independent samples.

What two models both get right or wrong cancels; what is left is far less noisy than either score. Seeds are a second
source of chance beside the items: a difference that holds for two trainings need not hold for the next two.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class McNemar(NamedTuple):
    """The items on which two models disagree, and the exact two-sided chance of so uneven a split."""

    only_first: int
    only_second: int
    p: float


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """McNemar's exact test: `first` and `second` [items] say which items each model got right."""
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    p = float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue) if only_a + only_b else 1.0
    return McNemar(only_a, only_b, p)


class PairedDifference(NamedTuple):
    """A mean difference with its interval and p-value against zero."""

    mean: float
    low: float
    high: float
    p: float


def paired_difference(
    differences: ArrayLike, weights: ArrayLike | None = None, *, confidence: float = 0.95
) -> PairedDifference:
    """The mean of `differences` [seeds, items] (or of sums over `weights` [items]); items and seeds are both chance.

    The variance of the mean is that over items, of their means over seeds, plus that over seeds, of their means over
    items. What only one seed does on one item counts in both, so the interval is rather too wide than too narrow. It is
    Student's with Satterthwaite's degrees of freedom: 3 seeds know their own spread badly. Needs 2 items or more.
    """
    values = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    seeds, items = values.shape
    load = np.ones(items) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = float(values.sum() / (seeds * load.sum()))
    rest = (values - mean * load) / load.mean()  # deviations, linearised where the weights differ
    means = [rest.mean(axis=0), *([rest.mean(axis=1)] if seeds > 1 else [])]  # by item, by seed
    parts = [(float(of.var(ddof=1)) / len(of), len(of) - 1) for of in means]  # variances of the mean, and their freedom
    error = math.sqrt(sum(part for part, _ in parts))
    if error == 0:
        return PairedDifference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    freedom = error**4 / sum(part**2 / degrees for part, degrees in parts)
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    return PairedDifference(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, freedom)))
