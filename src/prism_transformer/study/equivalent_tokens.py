"""A difference of loss in units that people understand: tokens, and time on this device.

Both need the slope of the loss: how much it falls when a whole run, schedule of the learning rate included, is given
more tokens; nats per unit of ln(tokens), so negative. Where the study has a baseline trained on fewer tokens, the
slope is measured between runs. Else it is read off the end of the baseline's own curve, which is only a stand-in: the
learning rate falls along it, so it is steeper than the slope between runs, and equivalent tokens come out too few.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .statistics import MIN_PAIRS, paired_t

Source = Literal["calibration", "curve"]
Slopes = Mapping[int, float]
"""seed -> slope, nats per unit of ln(tokens)"""

TRUSTED = (0.5, 2.0)
"""token factors beyond these are outside what a local slope can tell"""


def slope_between_runs(fewer_loss: float, loss: float, fewer_tokens: int, tokens: int) -> float:
    """The slope from one seed's run on fewer tokens and its run on all of them."""
    return (fewer_loss - loss) / math.log(fewer_tokens / tokens)


def slope_along_curve(tokens: ArrayLike, losses: ArrayLike) -> float | None:
    """The slope of a straight line through the last half (by tokens) of one run's curve; None below 3 points."""
    t, y = np.asarray(tokens, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(t) == 0:
        return None
    last_half = t >= t[-1] / 2
    x = np.log(t[last_half])
    if len(x) < 3 or x[0] == x[-1]:
        return None
    return float(np.polyfit(x, y[last_half], 1)[0])


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike, confidence: float) -> tuple[float, float] | None:
    """Fieller's interval of mean(numerators) / mean(denominators), paired; None where it is unbounded.

    It is the set of ratios r for which the mean of numerator - r x denominator is not told from zero by a paired t
    test, so it needs no approximation; it is unbounded when the denominator itself is not told from zero.
    """
    a, b = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    n = len(a)
    if n < MIN_PAIRS:
        return None
    t_squared = stats.t.ppf(0.5 + confidence / 2, n - 1) ** 2 / n
    covariance = np.cov(a, b, ddof=1)
    square = b.mean() ** 2 - t_squared * covariance[1, 1]
    linear = a.mean() * b.mean() - t_squared * covariance[0, 1]
    constant = a.mean() ** 2 - t_squared * covariance[0, 0]
    if square <= 0:
        return None
    root = math.sqrt(max(linear**2 - square * constant, 0.0))
    return float((linear - root) / square), float((linear + root) / square)


def equivalent_tokens(
    differences: Mapping[int, float], slopes: Slopes, source: Source, confidence: float | None
) -> dict[str, Any] | None:
    """The token factor at which the baseline would reach the arm's loss: exp(difference / slope), with its interval.

    `differences`: seed -> arm - baseline. None when no seed has both or the loss does not fall with tokens. Without
    `confidence` there is no interval: differences whose seeds chose each other's learning rate have no Fieller's.
    """
    seeds = sorted(differences.keys() & slopes.keys())
    d, s = [differences[seed] for seed in seeds], [slopes[seed] for seed in seeds]
    if not seeds or np.mean(s) >= 0:
        return None
    logs = ratio_interval(d, s, confidence) if confidence else None
    low, high = (_factor(logs[0]), _factor(logs[1])) if logs else (None, None)
    factor = _factor(float(np.mean(d) / np.mean(s)))
    return {
        "factor": factor,
        "low": low,
        "high": high,
        "n": len(seeds),
        "source": source,
        "trusted": all(f is None or TRUSTED[0] <= f <= TRUSTED[1] for f in (factor, low, high)),
    }


def _factor(log: float) -> float:
    return math.exp(max(-50.0, min(50.0, log)))


def equal_time(
    differences: Mapping[int, float],
    slopes: Slopes,
    speed_ratios: Mapping[int, float],
    source: Source,
    confidence: float | None,
) -> dict[str, Any] | None:
    """The difference if the arm were trained as long as the baseline on this device instead of on as many tokens.

    An estimate, not a run: an arm that does r times the baseline's tokens/s gets r times its tokens, worth
    slope x ln(r). `speed_ratios`: seed -> r. None when no seed has all three.
    """
    seeds = sorted(differences.keys() & slopes.keys() & speed_ratios.keys())
    if not seeds:
        return None
    values = [differences[seed] + slopes[seed] * math.log(speed_ratios[seed]) for seed in seeds]
    interval = paired_t(values, confidence) if confidence and len(seeds) >= MIN_PAIRS else None
    return {
        "mean": float(np.mean(values)),
        "low": float(interval.low) if interval else None,
        "high": float(interval.high) if interval else None,
        "n": len(seeds),
        "speed_ratio": float(np.exp(np.mean(np.log([speed_ratios[seed] for seed in seeds])))),
        "source": source,
        "confidence": confidence,
    }


def baseline_slopes(
    losses: Mapping[int, float],
    fewer: Mapping[int, tuple[float, int]],
    tokens: int,
    curves: Mapping[int, Sequence[tuple[int, float]]],
) -> tuple[Slopes, Source]:
    """The baseline's slope of each seed, between runs where the study has runs on fewer tokens.

    `losses`: seed -> loss; `fewer`: seed -> (loss, tokens) of the calibration; `curves`: seed -> (tokens, loss)...
    """
    between = {
        seed: slope_between_runs(loss, losses[seed], fewer_tokens, tokens)
        for seed, (loss, fewer_tokens) in fewer.items()
        if seed in losses and fewer_tokens != tokens
    }
    if len(between) >= MIN_PAIRS:
        return between, "calibration"
    along = {seed: slope_along_curve(*zip(*curve, strict=True)) for seed, curve in curves.items() if curve}
    return {seed: slope for seed, slope in along.items() if slope is not None}, "curve"
