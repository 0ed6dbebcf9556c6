"""Two models on the same items: paired, never as independent samples.

What two models both get right or wrong cancels; what is left is far less noisy than either score. Seeds are a second
source of chance beside the items: a difference that holds for two trainings need not hold for the next two.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]

RESAMPLES = 2000
_CHUNK = 2**24  # drawn items at a time


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


def paired_bootstrap(
    differences: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> PairedDifference:
    """The mean of `differences` [seeds, items] (or of sums over `weights` [items]), items and seeds both resampled.

    Items are drawn as columns, so what an item does to every seed stays together; seeds are drawn by their means,
    scaled so that their spread is unbiased. What only one seed does on one item counts in both, so the interval is
    rather too wide than too narrow. It is Student's over the bootstrap's standard error: 3 seeds know their own spread
    badly, and a percentile of 3 values would hide that. A pure function of its arguments. Needs 2 items or more.
    """
    values = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    seeds, items = values.shape
    load = np.ones(items) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = float(values.sum() / (seeds * load.sum()))
    rest = (values - mean * load) / load.mean()  # deviations, linearised where the weights differ
    of_items, of_seeds = rest.mean(axis=0), rest.mean(axis=1)
    random = np.random.default_rng(0)
    drawn = _resampled_means(of_items, resamples, random)
    parts = [(float(of_items.var(ddof=1)) / items, items - 1)]  # variances of the mean and their degrees of freedom
    if seeds > 1:
        drawn = drawn + math.sqrt(seeds / (seeds - 1)) * _resampled_means(of_seeds, resamples, random)
        parts.append((float(of_seeds.var(ddof=1)) / seeds, seeds - 1))
    error = float(drawn.std(ddof=1))
    if error == 0:
        return PairedDifference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    freedom = sum(part for part, _ in parts) ** 2 / sum(part**2 / degrees for part, degrees in parts)  # Satterthwaite
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    return PairedDifference(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def _resampled_means(values: Array, resamples: int, random: np.random.Generator) -> Array:
    """[resamples] means of as many values drawn with replacement."""
    n, done = len(values), 0
    means = np.empty(resamples)
    while done < resamples:
        rows = min(resamples - done, max(1, _CHUNK // n))
        means[done : done + rows] = values[random.integers(0, n, (rows, n), dtype=np.int32)].mean(axis=1)
        done += rows
    return means
