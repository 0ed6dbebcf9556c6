"""From paired differences to decisions: lower, higher, equivalent, cannot tell.

- The primary arm is judged alone; its decision is the verdict, wrong in at most alpha (5 %) of studies, all looks
  together (see statistics.py), where differences of pairs are normal; few pairs of another form may err more often.
- The secondary arms are one family: "lower" and "higher" follow Holm's adjusted p-values, so at most 5 % of studies
  say a false word about any of them. Intervals that hold for all of them at once are Bonferroni's (Holm has no
  two-sided interval that is always finite); "equivalent" is read from those.
- With several learning rates mean, interval and p-value are those of best against best (learning_rates.py).
- An arm that diverges where its partner does not is not called lower or equivalent for the pairs that are left.
- Calibration arms are judged one by one by the plain interval: the truth about them is known.
- "equivalent" comes before "lower" and "higher": a difference wholly inside the margin was declared, before the first
  run, too small to matter, even where it is surely there. It is read from the interval that decides (96 % at the first
  look), so it is stricter than two one-sided tests at 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .learning_rates import best_against_best
from .measured import Endpoint
from .statistics import (
    MIN_PAIRS,
    POWER,
    WEAK_PAIRS,
    Array,
    Interval,
    correlation,
    detectable_difference,
    holm,
    look_alpha,
    look_confidence,
    paired_t,
    sd_interval,
    seeds_needed,
    welch,
)

Decision = Literal["lower", "higher", "equivalent", "cannot_tell"]

NOT_CORRECTED = "the interval excludes zero, but not after the correction for several arms and looks"
"""the reason of a "cannot tell" beside an interval that lies on one side of zero"""

PLANNING_SHARES = (0.001, 0.003, 0.01)
"""shares of the loss for which the needed seeds are told: the margin's default, the paper's effect, an easy one"""


@dataclass(frozen=True)
class Pairs:
    """The seeds on which an arm and the one it is compared with have both finished."""

    arm: Mapping[int, float]
    """seed -> validation loss, nats per token; the same seeds in both"""
    other: Mapping[int, float]
    left_out: Sequence[Mapping[str, Any]] = ()
    """the seeds without a pair: {"seed", "arm", "status"} of each run that is not there"""
    at_rates: tuple[Array, Array] | None = None
    """in a study of several learning rates, all losses of (arm, other): [rates, seeds] each"""
    name: str = ""
    """of the arm, as `left_out` has it"""

    @property
    def differences(self) -> dict[int, float]:
        return {seed: loss - self.other[seed] for seed, loss in self.arm.items()}

    def interval(self, confidence: float) -> Interval:
        """Paired t; best against best over several rates."""
        if self.at_rates is None:
            return paired_t(list(self.differences.values()), confidence)
        return best_against_best(*self.at_rates, confidence)

    @property
    def is_pending(self) -> bool:
        return any(run["status"] == "pending" for run in self.left_out)

    def lost_alone(self) -> list[tuple[str, int]]:
        """(arm, seed) of the runs that diverged where the other one of the pair did not."""
        lost = [(run["arm"], run["seed"]) for run in self.left_out if run["status"] == "diverged"]
        seeds = [seed for _, seed in lost]
        return [(arm, seed) for arm, seed in lost if seeds.count(seed) == 1]


def judge(pairs: Mapping[str, Pairs], endpoint: Endpoint, *, calibration: bool = False) -> dict[str, dict[str, Any]]:
    """The difference and decision of each arm of one family (`pairs`: arm -> its pairs with the baseline)."""
    alpha, confidence = _levels(endpoint, calibration)
    described = {arm: _describe(of_arm, endpoint, confidence) for arm, of_arm in pairs.items()}
    ps = [1.0 if entry["p"] is None else entry["p"] for entry in described.values()]
    for entry, adjusted in zip(described.values(), holm(ps), strict=True):
        entry["p_adjusted"] = (
            None if entry["p"] is None else min(1.0, float(adjusted) * (1 - endpoint.confidence) / alpha)
        )
    for arm, entry in described.items():
        _decide(entry, pairs[arm], endpoint, alpha / len(pairs))
    return described


def _levels(endpoint: Endpoint, calibration: bool) -> tuple[float, float]:
    """(alpha that the decisions spend, confidence of the intervals shown)."""
    shown = look_confidence(endpoint.look, endpoint.confidence)
    return (1 - shown if calibration else look_alpha(endpoint.look, endpoint.confidence)), shown


def _describe(pairs: Pairs, endpoint: Endpoint, confidence: float) -> dict[str, Any]:
    """The paired difference as results.json holds it, before anything is decided."""
    values = list(pairs.differences.values())
    n = len(values)
    interval = pairs.interval(confidence) if n >= MIN_PAIRS else None
    mean = float(interval.mean) if interval else float(np.mean(values)) if n else None
    baseline = float(np.mean(list(pairs.other.values()))) if n else None
    low, high, p = (float(interval.low), float(interval.high), float(interval.p)) if interval else (None,) * 3
    one_rate = n >= MIN_PAIRS and pairs.at_rates is None
    unpaired = welch(list(pairs.arm.values()), list(pairs.other.values()), confidence) if one_rate else None
    return {
        "mean": mean,
        "low": low,
        "high": high,
        "n": n,
        "planned": endpoint.planned_seeds,
        "confidence": confidence,
        "sd": float(np.std(values, ddof=1)) if n >= MIN_PAIRS else None,
        "p": p,
        "per_seed": {str(seed): value for seed, value in pairs.differences.items()},
        "left_out": [dict(run) for run in pairs.left_out],
        "weak": MIN_PAIRS <= n <= WEAK_PAIRS,
        "relative": {key: _share(value, baseline) for key, value in (("mean", mean), ("low", low), ("high", high))},
        "unpaired": {"low": unpaired[0], "high": unpaired[1]} if unpaired else None,
        "correlation": correlation(list(pairs.arm.values()), list(pairs.other.values())),
        "baseline_mean": baseline,
        "margin": endpoint.equivalence * baseline if baseline is not None else None,
    }


def _share(value: float | None, baseline: float | None) -> float | None:
    return value / baseline if value is not None and baseline else None


def _decide(entry: dict[str, Any], pairs: Pairs, endpoint: Endpoint, alpha: float) -> None:
    """Add the decision, why it is not another, and the interval that it was read from."""
    if entry["n"] < MIN_PAIRS:
        why = "fewer than 2 pairs have no interval"
        entry |= {"decision": "cannot_tell", "reason": why, "withheld": False, "adjusted": None}
        return
    interval = pairs.interval(1 - alpha)
    low, high = float(interval.low), float(interval.high)
    entry["adjusted"] = {"low": low, "high": high, "confidence": 1 - alpha}
    decision: Decision = "cannot_tell"
    reason: str | None = None
    if pairs.is_pending:
        reason = "runs are still to come; deciding early and stopping when it suits would make false decisions"
    elif -entry["margin"] < low and high < entry["margin"]:
        decision = "equivalent"
    elif entry["p_adjusted"] <= 1 - endpoint.confidence:
        decision = "lower" if entry["mean"] < 0 else "higher"
    elif entry["low"] > 0 or entry["high"] < 0:
        reason = NOT_CORRECTED
    withheld = False
    flattered = {"lower", "equivalent"}, {"higher", "equivalent"}
    for arm, seed in pairs.lost_alone():
        if decision in flattered[arm != pairs.name]:
            decision, withheld = "cannot_tell", True
            reason = f"{arm} diverged with seed {seed}, and the pairs that are left would hide that"
    entry |= {"decision": decision, "reason": reason, "withheld": withheld}


def what_pairs_find(entry: Mapping[str, Any], baseline_loss: float, endpoint: Endpoint) -> dict[str, Any] | None:
    """What these pairs could find, and how many a later look would need; None where no spread is known.

    At a power of 80 %. The seeds are a range, from the 95 % interval of the spread, at the alpha of the next look.
    """
    if not entry["sd"]:
        return None
    spread = sd_interval(entry["sd"], entry["n"])
    now = 1 - look_alpha(endpoint.look, endpoint.confidence)
    later = 1 - look_alpha(endpoint.look + 1, endpoint.confidence)
    needed = [
        {"relative": share, "difference": share * baseline_loss}
        | dict(zip(("low", "high"), seeds_needed(share * baseline_loss, *spread, confidence=later), strict=True))
        for share in PLANNING_SHARES
    ]
    detectable = detectable_difference(entry["sd"], entry["n"], confidence=now)
    return {
        "power": POWER,
        "detectable": detectable,
        "detectable_relative": detectable / baseline_loss,
        "sd_low": spread[0],
        "sd_high": spread[1],
        "seeds_needed": needed,
    }
