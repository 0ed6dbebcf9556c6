"""The arithmetic of paired comparisons: intervals, corrections, power.

Everything works on arrays of differences (arm - baseline, one per seed), so that a test can push ten thousand
simulated studies through the very functions that judge a real one.

One rule for two promises. A study has one planned look; its seeds may be extended later, each extension being one
more look. The interval of the first look is the plain one: at 95 % it covers 95 %. But a word, "lower" or "higher", may
be said at any of them and then be remembered, so all looks together may spend alpha = 5 % on false words and no more:
- the first look decides at 4/5 of alpha,
- look k >= 2 at 1/5 alpha / (k (k - 1)); over all k >= 2 these sum to 1/5 alpha, however often a study is extended.
By Bonferroni's inequality a false word is said in at most 5 % of studies, whatever makes its owner stop or go on.
The price at the first look is a difference with p between .04 and .05: its 95 % interval excludes zero, and the
decision is still "cannot tell". From the second look on the shown interval has the confidence of its look (99.5 % for
the second), since it was chosen after seeing the first.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

Array = NDArray[np.float64]

MIN_PAIRS = 2
"""fewer pairs have no spread, so no interval"""

WEAK_PAIRS = 3
"""up to so many pairs a verdict is called weak: the spread itself is hardly known"""

FIRST_LOOK_SHARE = 0.8
"""of alpha; the rest is kept for looks after an extension of the seeds"""

POWER = 0.8
"""chance of finding a true difference, at which plans are made"""

MOST_SEEDS = 10_000
"""seeds_needed stops here: nobody trains so many"""


class Interval(NamedTuple):
    """A mean with its two-sided interval and p-value against zero; arrays, or zero-dimensional arrays for one study."""

    mean: Array
    sd: Array
    low: Array
    high: Array
    p: Array


def paired_t(differences: ArrayLike, confidence: float) -> Interval:
    """Student's t interval of the mean over the last axis: `differences` [..., n], n >= 2."""
    values = np.asarray(differences, dtype=np.float64)
    n = values.shape[-1]
    mean, sd = values.mean(axis=-1), values.std(axis=-1, ddof=1)
    error = sd / math.sqrt(n)
    half = special.stdtrit(n - 1, 0.5 + confidence / 2) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * special.stdtr(n - 1, -np.abs(mean / error))
    return Interval(mean, sd, mean - half, mean + half, np.where(error > 0, p, np.where(mean == 0, 1.0, 0.0)))


def welch(arm: ArrayLike, baseline: ArrayLike, confidence: float) -> tuple[float, float]:
    """The unpaired interval of mean(arm) - mean(baseline), unequal spreads allowed: what pairing is held against."""
    a, b = np.asarray(arm, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    variance_a, variance_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    total = variance_a + variance_b
    mean = float(a.mean() - b.mean())
    if total == 0:
        return mean, mean
    freedom = total**2 / (variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1))
    half = float(special.stdtrit(freedom, 0.5 + confidence / 2) * math.sqrt(total))
    return mean - half, mean + half


def correlation(arm: ArrayLike, baseline: ArrayLike) -> float | None:
    """Pearson's correlation over seeds: what two arms share with a seed, and pairing takes out. None below 3 pairs."""
    a, b = np.asarray(arm, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def look_alpha(look: int, confidence: float) -> float:
    """The chance of a false "lower" or "higher" that look `look` (1 is the planned one) may spend."""
    alpha = 1 - confidence
    if look == 1:
        return FIRST_LOOK_SHARE * alpha
    return (1 - FIRST_LOOK_SHARE) * alpha / (look * (look - 1))


def look_confidence(look: int, confidence: float) -> float:
    """The confidence of the interval shown at a look: the plain one at the first, its own share of alpha later."""
    return confidence if look == 1 else 1 - look_alpha(look, confidence)


def holm(p: ArrayLike) -> Array:
    """Holm's adjusted p-values over the last axis: rejecting those <= alpha keeps the family's false words <= alpha."""
    values = np.asarray(p, dtype=np.float64)
    m = values.shape[-1]
    order = np.argsort(values, axis=-1)
    scaled = np.take_along_axis(values, order, axis=-1) * np.arange(m, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, stepped, axis=-1)
    return adjusted


def power_of(difference: float, sd: float, n: int, confidence: float = 0.95) -> float:
    """The chance that n pairs of spread `sd` show a true `difference` as one (two-sided t test, noncentral t)."""
    if n < MIN_PAIRS:
        return 0.0
    if sd == 0:
        return float(difference != 0)
    critical = special.stdtrit(n - 1, 0.5 + confidence / 2)
    shift = abs(difference) * math.sqrt(n) / sd
    wrong_side = special.nctdtr(n - 1, shift, -critical) if shift < 5 else 0.0  # below 1e-6 there, where SciPy fails
    missed = special.nctdtr(n - 1, shift, critical)
    if math.isnan(missed):  # as SciPy's is here and there from a shift of 36 on, where it is 0 or 1
        missed = float(shift < critical)
    return float(1 - missed + wrong_side)


def detectable_difference(sd: float, n: int, confidence: float = 0.95) -> float:
    """The smallest true difference that n pairs find with a power of 80 %; infinite below 2 pairs. Unit of `sd`.

    For the decision of a planned look give `confidence = 1 - look_alpha(1, .95)`.
    """
    if n < MIN_PAIRS:
        return math.inf
    if sd == 0:
        return 0.0

    def surplus(size: float) -> float:
        return power_of(size, 1.0, n, confidence) - POWER

    top = 1.0
    while surplus(top) < 0:
        top *= 2
    return sd * float(optimize.brentq(surplus, 0.0, top))


def seeds_needed(difference: float, sd_low: float, sd_high: float, confidence: float = 0.95) -> tuple[int, int]:
    """The range of pairs that find `difference` with a power of 80 %, for a spread between `sd_low` and `sd_high`.

    A range, since a spread measured on a few pairs is itself uncertain (`sd_interval`). At least 3, at most
    MOST_SEEDS, which stands for "more than anybody trains".
    """
    low, high = (_seeds(abs(difference), sd, confidence) for sd in (sd_low, sd_high))
    return low, high


def _seeds(difference: float, sd: float, confidence: float) -> int:
    low, high = WEAK_PAIRS, MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        if power_of(difference, sd, middle, confidence) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low


def sd_interval(sd: float, n: int) -> tuple[float, float]:
    """The 95 % chi-square interval of a standard deviation measured on n >= 2 normal values."""
    freedom = n - 1
    low = math.sqrt(freedom / float(stats.chi2.ppf(0.975, freedom)))
    high = math.sqrt(freedom / float(stats.chi2.ppf(0.025, freedom)))
    return sd * low, sd * high
