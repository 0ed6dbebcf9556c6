"""Two arms on the same task: the paired difference of every metric, over its items and over the seeds of both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .paired_items import mcnemar, paired_difference
from .scores import Item, Score

Decision = Literal["higher", "lower", "cannot_tell"]
_SAME_NATS = ("byte_perplexity", "bits_per_byte")  # word_perplexity's items in other units


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """One model's score on one task."""

    arm: str
    seed: int | None
    score: Score
    items: Sequence[Item]


def compare(
    baseline: Sequence[ScoredRun], arm: Sequence[ScoredRun], *, confidence: float = 0.95
) -> list[dict[str, Any]]:
    """The difference arm - baseline in each metric of one task: {metric, mean, low, high, p, decision, …}.

    Accuracies in shares; perplexities as nats per item or word, higher being better, and their ratio beside it; the
    loss of a text in nats per token, lower being better. Runs are paired by seed; two runs that have no seed in common
    are paired as they are, over items alone. One pair of accuracies is judged by McNemar's exact test, everything else
    by the interval. Raises InputError where the items are not the same.
    """
    pairs = _pairs(baseline, arm)
    if not pairs:
        return []
    metrics = [metric for metric in pairs[0][0].score["metrics"] if metric not in _SAME_NATS]
    found = []
    for metric in metrics:
        values = [tuple(_values(run, metric) for run in pair) for pair in pairs]
        if all(each is not None for pair in values for each in pair):
            found.append(_difference(metric, pairs, values, confidence))
    return found


def compare_arms(runs: Sequence[Mapping[str, ScoredRun]]) -> list[dict[str, Any]]:
    """Every arm against the first one's, task by task; `runs` are the scores of each model by task."""
    found = []
    for task in runs[0] if runs else ():
        by_arm: dict[str, list[ScoredRun]] = {}
        for scores in runs:
            by_arm.setdefault(scores[task].arm, []).append(scores[task])
        baseline, *others = by_arm
        for arm in others:
            for entry in compare(by_arm[baseline], by_arm[arm]):
                found.append({"task": task, "arm": arm, "baseline": baseline, **entry})
    return found


def _pairs(baseline: Sequence[ScoredRun], arm: Sequence[ScoredRun]) -> list[tuple[ScoredRun, ScoredRun]]:
    by_seed = {run.seed: run for run in baseline}
    pairs = [(by_seed[run.seed], run) for run in arm if run.seed in by_seed]
    if not pairs and len(baseline) == len(arm) == 1:
        pairs = [(baseline[0], arm[0])]
    for first, second in pairs:
        if not same_items([pairs[0][0], first, second]):
            raise InputError(
                f"{first.score['task']}: {first.arm} and {second.arm} were not scored on the same items and prompts; "
                "score them again from the same data, with the same limit and shots"
            )
    return pairs


def same_items(runs: Sequence[ScoredRun]) -> bool:
    """Whether all were scored on the same items and prompts."""
    return all(_keys(run) == _keys(runs[0]) for run in runs[1:])


def _keys(run: ScoredRun) -> list[tuple[Any, ...]]:
    return [(item.get("task"), item["item"], item["sha256"], item["prompt_sha256"]) for item in run.items]


def _values(run: ScoredRun, metric: str) -> npt.NDArray[np.float64] | None:
    """[items, 1 or 2] numbers, or pairs of nats and words; None where an item has something else."""
    try:
        rows = np.array([item["values"][metric] for item in run.items], dtype=np.float64)
    except (KeyError, ValueError, TypeError):
        return None
    return rows.reshape(len(rows), -1) if rows.ndim <= 2 and len(rows) > 1 else None


def _difference(metric: str, pairs: Sequence[Any], values: Sequence[Any], confidence: float) -> dict[str, Any]:
    first, second = (np.stack([pair[side] for pair in values]) for side in (0, 1))
    has_weights = first.shape[2] == 2
    weights = first[0, :, 1] if has_weights else _weights(pairs[0][0].items)
    differences = (second[:, :, 0] - first[:, :, 0]) * (1.0 if has_weights else weights)
    interval = paired_difference(differences, weights, confidence=confidence)
    is_right_or_wrong = metric.startswith(("acc", "exact_match")) and set(np.unique([first, second])) <= {0.0, 1.0}
    result = {"metric": metric, **interval._asdict(), "seeds": len(pairs), "items": first.shape[1]}
    if is_right_or_wrong:
        result["unit"] = "share"
        if not differences.any():  # no spread at all: as many items may differ as Clopper-Pearson says
            bound = 1 - ((1 - confidence) / 2) ** (1 / first.shape[1])
            result |= {"low": -bound, "high": bound}
        if len(pairs) == 1:
            test = mcnemar(second[0, :, 0], first[0, :, 0])
            result |= {"p": test.p, "only_arm": test.only_first, "only_baseline": test.only_second, "test": "mcnemar"}
    elif "perplexity" in metric:
        result["unit"] = "nats per word" if has_weights else "nats per item"
        result["ratio"] = math.exp(-interval.mean)
    else:
        result["unit"] = "nats per token" if metric == "nats_per_token" else "mean"
    return {**result, "confidence": confidence, "decision": _decide(result, confidence)}


def _weights(items: Sequence[Item]) -> npt.NDArray[np.float64]:
    """[items] so that each task of a group counts alike, as in the group's mean."""
    names = [item.get("task") for item in items]
    counts = {name: names.count(name) for name in set(names)}
    return np.array([1 / counts[name] for name in names])


def _decide(result: Mapping[str, Any], confidence: float) -> Decision:
    if result["p"] >= 1 - confidence:
        return "cannot_tell"
    return "higher" if result["mean"] > 0 else "lower"
