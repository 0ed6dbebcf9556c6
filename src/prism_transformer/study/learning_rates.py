"""Several learning rates: which run of a seed stands for an arm.

Best against best, with the rate of a seed chosen on the other seeds: a rate chosen on the very loss that is then
compared would favour the arm with more noise.
"""

from collections.abc import Sequence

import numpy as np

from .measured import RunResult, usable


def rates_of(runs: Sequence[RunResult]) -> list[float]:
    """The learning rates of a study, ascending; empty or one long in a study of one rate."""
    return sorted({run.lr for run in runs if run.lr is not None})


def leave_one_out(runs: Sequence[RunResult]) -> list[RunResult]:
    """One run for each arm and seed: at the rate with the lowest mean loss of that arm over its other seeds."""
    chosen = []
    for arm in dict.fromkeys(run.arm for run in runs):
        of_arm = [run for run in runs if run.arm == arm]
        for seed in sorted({run.seed for run in of_arm}):
            rate = _best_rate(of_arm, seed)
            chosen += [run for run in of_arm if run.seed == seed and run.lr == rate]
    return chosen


def _best_rate(runs: Sequence[RunResult], seed: int) -> float | None:
    """The best rate for `seed` of one arm. A rate that diverged with any seed is chosen only if all have."""
    diverged = {run.lr for run in runs if run.status == "diverged"}
    rates = sorted({run.lr for run in runs} - diverged or diverged, key=lambda rate: rate or 0.0)
    losses = {rate: {run.seed: run.val_loss for run in runs if run.lr == rate and usable(run)} for rate in rates}
    others = [set(of_rate) - {seed} for of_rate in losses.values()]
    common = set.intersection(*others) or {seed}  # one seed alone: no verdict is taken from it anyway

    def mean(rate: float | None) -> float:
        values = [loss for s, loss in losses[rate].items() if s in common and loss is not None]
        return float(np.mean(values)) if values else np.inf

    return min(rates, key=mean)
