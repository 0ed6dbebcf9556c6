"""Training dynamics: when each arm first reaches a validation loss, in steps, tokens and seconds.

Between two evaluations the loss is taken to fall linearly with ln(tokens), so a crossing is worked out, not observed.
Evaluations on the way see windows spread over the validation split, the same for all arms.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .measured import Evaluation
from .statistics import MIN_PAIRS, paired_t

Curve = Sequence[Evaluation]

MILESTONES = 6
_UNITS = ("step", "tokens", "seconds")


class Crossing(NamedTuple):
    """Where a loss was first reached."""

    step: float
    tokens: float
    seconds: float


def first_reached(curve: Curve, level: float) -> Crossing | None:
    """Where `curve` first is at or below `level`; None where it never is."""
    before: Evaluation | None = None
    for point in curve:
        if point.val_loss <= level:
            if before is None or before.val_loss <= point.val_loss:
                return Crossing(point.step, point.tokens, point.seconds)
            passed = (before.val_loss - level) / (before.val_loss - point.val_loss)
            # Before the first step there are no tokens, so no logarithm of them.
            at = before.tokens ** (1 - passed) * point.tokens**passed if before.tokens else passed * point.tokens
            part = (at - before.tokens) / (point.tokens - before.tokens)
            step = before.step + part * (point.step - before.step)
            return Crossing(step, at, before.seconds + part * (point.seconds - before.seconds))
        before = point
    return None


def milestones(
    curves: Mapping[str, Mapping[int, Curve]],
    *,
    baseline: str,
    confidence: float,
) -> list[dict[str, Any]]:
    """One entry a loss: {level, arms.NAME, differences.NAME}; `curves` are {arm: {seed: curve}} of finished runs.

    arms.NAME: reached (seeds), runs, and the mean step, tokens and seconds of those that reached it.
    differences.NAME, paired by seed: tokens and seconds as factors of the baseline's {factor, low, high, n}, from the
    t interval of the log ratio; null below two pairs. A run that never reached the loss is left out and counted.
    """
    levels = default_levels(curves[baseline], list(curves.values()))
    return [milestone(level, curves, baseline=baseline, confidence=confidence) for level in levels]


def default_levels(baseline: Mapping[int, Curve], arms: Sequence[Mapping[int, Curve]]) -> list[float]:
    """Up to 6 losses with as few digits as tell them apart: from the loss at a third of the baseline's tokens on.

    The lowest is one that every finished run of every arm has reached.
    """
    runs = [curve for by_seed in arms for curve in by_seed.values() if len(curve) > 1]
    if not runs or not any(len(curve) > 1 for curve in baseline.values()):
        return []
    bottom = max(min(point.val_loss for point in curve) for curve in runs)
    early = [[at.val_loss for at in curve if 3 * at.tokens >= curve[-1].tokens] for curve in baseline.values()]
    top = min(losses[0] for losses in early if losses)
    if not top > bottom:
        return []
    step = 10.0 ** math.floor(math.log10((top - bottom) / 2))
    while (top - bottom) / step > MILESTONES:
        step *= 2 if f"{step:e}"[0] in "15" else 2.5
    digits = max(0, -math.floor(math.log10(step)) + 1)
    lowest = math.ceil(bottom / step)
    return [round(k * step, digits) for k in range(math.floor(top / step), lowest - 1, -1)]


def milestone(
    level: float, curves: Mapping[str, Mapping[int, Curve]], *, baseline: str, confidence: float
) -> dict[str, Any]:
    """The entry of `milestones` for one loss."""
    reached = {
        arm: {seed: found for seed, curve in by_seed.items() if (found := first_reached(curve, level))}
        for arm, by_seed in curves.items()
    }
    arms = {
        arm: {"runs": len(curves[arm]), "reached": sorted(by_seed), **_means(list(by_seed.values()))}
        for arm, by_seed in reached.items()
    }
    differences = {
        arm: _factors(reached[baseline], by_seed, confidence) for arm, by_seed in reached.items() if arm != baseline
    }
    return {"level": level, "arms": arms, "differences": differences}


def _means(found: Sequence[Crossing]) -> dict[str, float | None]:
    return {unit: float(np.mean([getattr(each, unit) for each in found])) if found else None for unit in _UNITS}


def _factors(
    baseline: Mapping[int, Crossing], arm: Mapping[int, Crossing], confidence: float
) -> dict[str, dict[str, Any] | None]:
    """How many times the baseline's tokens and seconds an arm took to the same loss, over the seeds of both."""
    found: dict[str, dict[str, Any] | None] = {}
    for unit in ("tokens", "seconds"):
        pairs = [(getattr(arm[s], unit), getattr(baseline[s], unit)) for s in sorted(arm.keys() & baseline.keys())]
        logs = [math.log(own / its) for own, its in pairs if own > 0 and its > 0]
        found[unit] = None
        if len(logs) >= MIN_PAIRS:
            interval = paired_t(logs, confidence)
            found[unit] = {
                "factor": math.exp(float(interval.mean)),
                "low": math.exp(float(interval.low)),
                "high": math.exp(float(interval.high)),
                "n": len(logs),
            }
    return found
