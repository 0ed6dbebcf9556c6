"""Zero-shot scores of a study: each task's mean over an arm's seeds, and its paired difference to the baseline.

STUDY/zero_shot.json        by task; the scores and items themselves stay in the runs, which it names
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import read_json, write_json
from .folder import Study
from .plan import RunKey
from .statistics import MIN_PAIRS

if TYPE_CHECKING:
    from ..evaluation.comparison import ScoredRun

ZERO_SHOT = "zero_shot.json"
_TOLD = ("items", "available", "shots", "version", "chance", "prompt")


def finished_runs(study: Study) -> list[RunKey]:
    """What is to be scored, by arm and seed, the baseline's first: the others are compared with the first."""
    baseline = study.endpoint().baseline
    order = [baseline, *(arm.name for arm in study.arms if arm.name != baseline)]
    done = [run for run in study.runs if study.status(run) == "done"]
    return sorted(done, key=lambda run: (order.index(run.arm), run.seed))


def label(limit: int | None, shots: int | None = None) -> str:
    """How scores on the first items of each task, or with examples, are named in zero_shot.json."""
    from ..evaluation.scores import file_name  # imports torch

    return file_name("", {"limit": limit, "shots_asked": shots})


def keep_scores(
    folder: Path,
    scored: Sequence[Mapping[str, "ScoredRun"]],
    places: Sequence[Path],
    comparisons: Sequence[Mapping[str, Any]],
    *,
    limit: int | None,
    shots: int | None = None,
) -> None:
    """Sum up the scores of `finished_runs` in the study's zero_shot.json; `places` are where each run's are kept."""
    sources = [os.path.relpath(place, folder) for place in places]  # the study may move
    write_zero_shot(folder, label(limit, shots), summarise(scored, sources, comparisons))


def summarise(
    runs: Sequence[Mapping[str, "ScoredRun"]], sources: Sequence[str], comparisons: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """By task: what it was, every arm's scores, and the comparisons with the first arm. Pure.

    `runs` are the scores of each run by task; `sources` name the folder of each; `comparisons` are those of
    `evaluation.comparison.compare_arms`.
    """
    tasks: dict[str, Any] = {}
    for name in runs[0] if runs else ():
        of_task = [run[name] for run in runs]
        first = of_task[0].score
        by_arm: dict[str, list[tuple[ScoredRun, str]]] = {}
        for run, source in zip(of_task, sources, strict=True):
            by_arm.setdefault(run.arm, []).append((run, source))
        tasks[name] = {
            **{key: first[key] for key in _TOLD},
            "truncated": [run.score["truncated"] for run in of_task],
            "arms": {arm: _arm(found) for arm, found in by_arm.items()},
            "comparisons": [dict(each) for each in comparisons if each["task"] == name],
        }
    return tasks


def _arm(found: Sequence[tuple["ScoredRun", str]]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for metric in found[0][0].score["metrics"]:
        values = [run.score["metrics"][metric]["value"] for run, _ in found]
        spread = float(np.std(values, ddof=1)) if len(values) >= MIN_PAIRS else None
        metrics[metric] = {"mean": float(np.mean(values)), "sd": spread, "per_seed": values}
    at_chance = {metric: sum(metric in run.score["at_chance"] for run, _ in found) for metric in metrics}
    return {
        "seeds": [run.seed for run, _ in found],
        "metrics": metrics,
        "at_chance": {metric: count for metric, count in at_chance.items() if count},
        "sources": [source for _, source in found],
    }


def write_zero_shot(folder: Path, label: str, tasks: Mapping[str, Any]) -> Path:
    """Add tasks to zero_shot.json, in the place of the same ones; `label` tells partial scores from whole ones."""
    path = folder / ZERO_SHOT
    known = read_zero_shot(folder) or {}
    write_json(path, {**known, **{f"{name}{label}": task for name, task in tasks.items()}})
    return path


def read_zero_shot(folder: Path) -> dict[str, Any] | None:
    """The zero_shot.json of a study folder, None where nothing was scored."""
    path = folder / ZERO_SHOT
    return read_json(path) if path.exists() else None
