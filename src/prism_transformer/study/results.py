"""What a study measured, and what it shows: the input and the output of the statistics.

`analyse` is pure: runs in, the content of results.json out. Every figure is unrounded and traceable to a run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

Status = Literal["done", "diverged", "missing", "pending"]
Role = Literal["baseline", "primary", "secondary", "calibration_less", "calibration_null"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One training of one arm with one seed, as the statistics see it."""

    arm: str
    seed: int
    status: Status
    """done; diverged (a loss that is not finite); missing (lost, it will not come); pending (the study still has to run it)"""
    val_loss: float | None
    """final loss on the whole validation split, nats per token; None unless done"""
    tokens: int
    """tokens trained on"""
    curve: tuple[tuple[int, int, float, float], ...] = ()
    """evaluations in order: (step, tokens, seconds of training, validation loss)"""
    tokens_per_second: float | None = None
    lr: float | None = None
    """peak learning rate, where a study has several"""


@dataclass(frozen=True, kw_only=True)
class ArmInfo:
    """One arm of a study."""

    name: str
    heads: tuple[int, ...]
    """heads per layer, first layer first; () where unknown (runs of another trainer)"""
    role: Role
    settings: Mapping[str, Any] = field(default_factory=dict)
    """what the arm sets besides its heads, e.g. {"rope_width": "base"}"""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What was fixed before the first run."""

    baseline: str
    primary: str | None
    planned_seeds: int
    confidence: float = 0.95
    equivalence: float = 0.001
    """differences within this share of the baseline's loss do not matter"""
    looks: tuple[int, ...] = ()
    """the seed counts at which results were looked at; each extension of the seeds adds one"""


def analyse(arms: Sequence[ArmInfo], runs: Sequence[RunResult], endpoint: Endpoint) -> dict[str, Any]:
    """The content of results.json (plain paired t intervals)."""
    seeds = sorted({run.seed for run in runs})
    losses = {
        arm.name: [
            next((r.val_loss for r in runs if (r.arm, r.seed, r.status) == (arm.name, seed, "done")), None)
            for seed in seeds
        ]
        for arm in arms
    }
    differences = {
        arm.name: _difference(losses[arm.name], losses[endpoint.baseline], endpoint)
        for arm in arms
        if arm.name != endpoint.baseline
    }
    verdict_arm = endpoint.primary
    decision = differences[verdict_arm]["decision"] if verdict_arm else "cannot_tell"
    return {
        "seeds": seeds,
        "baseline": endpoint.baseline,
        "endpoint": asdict(endpoint),
        "arms": {arm.name: _arm(arm, losses[arm.name]) for arm in arms},
        "differences": differences,
        "verdict": {"arm": verdict_arm, "decision": decision, "text": f"{verdict_arm}: {decision}"},
    }


def _arm(arm: ArmInfo, losses: list[float | None]) -> dict[str, Any]:
    values = [loss for loss in losses if loss is not None]
    return {
        "heads": list(arm.heads),
        "val_loss": losses,
        "mean": float(np.mean(values)) if values else None,
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
    }


def _difference(arm: list[float | None], baseline: list[float | None], endpoint: Endpoint) -> dict[str, Any]:
    pairs = [a - b for a, b in zip(arm, baseline, strict=True) if a is not None and b is not None]
    n = len(pairs)
    mean = float(np.mean(pairs)) if pairs else None
    low = high = None
    decision = "cannot_tell"
    if n > 1 and mean is not None:
        half = float(stats.t.ppf(0.5 + endpoint.confidence / 2, n - 1) * np.std(pairs, ddof=1) / np.sqrt(n))
        low, high = mean - half, mean + half
        decision = "lower" if high < 0 else "higher" if low > 0 else "cannot_tell"
    return {
        "mean": mean, "low": low, "high": high, "n": n, "planned": endpoint.planned_seeds,
        "confidence": endpoint.confidence, "decision": decision,
    }  # fmt: skip


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Write results.json into `folder`, whole or not at all."""
    temporary = folder / ".results.json.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / "results.json")
