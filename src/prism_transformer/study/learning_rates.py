"""Several learning rates: best against best.

Each arm is read at its own best rate, chosen for a seed on the other seeds: a rate chosen on the very loss that is then
compared would favour the arm with more noise. The mean difference so found is fair, but Student's t of it is not an
interval: seeds that choose for each other are not independent, and with rates that are equally good it would call
9 to 20 % of null studies a difference (simulated: 2 to 5 rates, 3 to 10 seeds). `best_against_best` is one that holds.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .measured import RunResult, usable
from .statistics import Interval

Rate = float | None


def rates_of(runs: Sequence[RunResult]) -> list[float]:
    """The learning rates of a study, ascending; empty or one long in a study of one rate."""
    return sorted({run.lr for run in runs if run.lr is not None})


def candidates(runs: Sequence[RunResult]) -> dict[Rate, dict[int, float]]:
    """rate -> seed -> loss of one arm's runs, at the rates that it may choose: where it diverged, only if all have."""
    diverged = {run.lr for run in runs if run.status == "diverged"}
    rates = sorted({run.lr for run in runs} - diverged or diverged, key=lambda rate: rate or 0.0)
    losses: dict[Rate, dict[int, float]] = {rate: {} for rate in rates}
    for run in runs:
        if run.lr in losses and usable(run) and run.val_loss is not None:
            losses[run.lr][run.seed] = run.val_loss
    return losses


def leave_one_out(runs: Sequence[RunResult]) -> list[RunResult]:
    """One run for each arm and seed: at the rate with the lowest mean loss of that arm over its other seeds."""
    chosen = []
    for arm in dict.fromkeys(run.arm for run in runs):
        of_arm = [run for run in runs if run.arm == arm]
        losses = candidates(of_arm)
        for seed in sorted({run.seed for run in of_arm}):
            rate = _best_rate(losses, seed)
            chosen += [run for run in of_arm if run.seed == seed and run.lr == rate]
    return chosen


def _best_rate(losses: Mapping[Rate, Mapping[int, float]], seed: int) -> Rate:
    others = [set(of_rate) - {seed} for of_rate in losses.values()]
    common = set.intersection(*others) or {seed}  # one seed alone: no verdict is taken from it anyway

    def mean(rate: Rate) -> float:
        values = [loss for s, loss in losses[rate].items() if s in common]
        return float(np.mean(values)) if values else math.inf

    return min(losses, key=mean)


def best_against_best(arm: ArrayLike, other: ArrayLike, confidence: float) -> Interval:
    """The interval of min over rates of the arm's mean - min over rates of the other's: [..., rates, n] each.

    For any one rate r of the arm the difference is at most the largest, over the other's rates, of (arm at r - other
    at that rate), so an upper bound for each r holds with no correction over the other's rates, and the smallest over
    r with Bonferroni's over the arm's own; likewise below. It covers at least `confidence`, whatever the rates,
    spreads and correlations (`mean` is the difference of the smallest means, `sd` is not defined and NaN).
    """
    a, b = np.asarray(arm, dtype=np.float64), np.asarray(other, dtype=np.float64)
    differences = a[..., :, None, :] - b[..., None, :, :]
    n = differences.shape[-1]
    mean, error = differences.mean(axis=-1), differences.std(axis=-1, ddof=1) / math.sqrt(n)
    arm_rates, other_rates = mean.shape[-2:]
    tail = (1 - confidence) / 2
    high = mean + stats.t.isf(tail / arm_rates, n - 1) * error
    low = mean - stats.t.isf(tail / other_rates, n - 1) * error
    t = mean / np.where(error > 0, error, 1e-300)
    is_lower = 2 * arm_rates * stats.t.cdf(t, n - 1).max(axis=-1).min(axis=-1)
    is_higher = 2 * other_rates * stats.t.sf(t, n - 1).max(axis=-2).min(axis=-1)
    best = a.mean(axis=-1).min(axis=-1) - b.mean(axis=-1).min(axis=-1)
    return Interval(
        mean=best,
        sd=np.full_like(best, np.nan),
        low=low.min(axis=-2).max(axis=-1),
        high=high.max(axis=-1).min(axis=-1),
        p=np.minimum(1.0, np.minimum(is_lower, is_higher)),
    )
