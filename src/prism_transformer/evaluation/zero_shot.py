"""Zero-shot scores of a model on the tasks of lm-evaluation-harness, with everything that a number depends on.

The harness is imported on first use: it belongs to the extra `eval`.
"""

import importlib.util
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from .loading import LoadedModel
from .scores import Item, Score

if TYPE_CHECKING:
    from .harness_tasks import LoadedTasks

CHANCE_Z = 1.96
"""An accuracy that is not so many standard errors above guessing is called chance-level."""


def require_harness() -> None:
    """Raise InputError where the extra is not installed."""
    missing = [name for name in ("lm_eval", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"tasks need lm-evaluation-harness, and {' and '.join(missing)} is not installed: "
            "pip install 'prism-transformer[eval]'"
        )


@contextmanager
def open_tasks(
    names: Sequence[str], *, folder: Path | None, shots: int | None = None, say: Callable[[str], None] = print
) -> Iterator["LoadedTasks"]:
    """The tasks `names`, with items from `folder` where they are there; see harness_tasks.load_tasks."""
    require_harness()
    from .harness_tasks import load_tasks

    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder of evaluation sets")
    with TemporaryDirectory(prefix="prism-eval-") as scratch:
        yield load_tasks(names, folder=folder, scratch=Path(scratch), shots=shots, say=say)


def score_tasks(
    loaded: LoadedModel,
    tasks: "LoadedTasks",
    *,
    limit: int | None = None,
    batch_size: int = 16,
    autocast: AbstractContextManager[object] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, tuple[Score, list[Item]]]:
    """Score every task, and each group as its tasks' mean: {name: (score, items)}.

    `limit` takes the first items of each task only. Log-likelihoods do not depend on `batch_size` beyond 1e-4 nats.
    """
    from lm_eval.evaluator import evaluate

    from .harness_model import HarnessModel
    from .harness_tasks import quiet_harness

    model = HarnessModel(loaded, batch_size=batch_size, autocast=autocast, on_progress=on_progress)
    asked = {"tasks": dict(tasks.tasks), "groups": dict(tasks.groups), "group_map": dict(tasks.members)}
    with quiet_harness(), redirect_stderr(io.StringIO()):  # its progress bars have no switch
        raw = evaluate(model, asked, limit=limit, bootstrap_iters=0, log_samples=True)
    found = {}
    for name, task in tasks.tasks.items():
        items = _items(raw["samples"][name])
        score = _score(name, task, raw, items, tasks.sources[name])
        found[name] = (score | {"truncated": len(model.truncated.get(name, ()))}, items)
    for name in tasks.groups:
        parts = {part: found[part] for part in tasks.parts(name)}
        found[name] = _grouped(name, raw["results"].get(name, {}), parts)
    return {name: found[name] for name in tasks.names}


def _items(samples: Sequence[Mapping[str, Any]]) -> list[Item]:
    """One entry an item: its number, what each metric gives it, and what the model said."""
    items: dict[int, Item] = {}
    for sample in samples:
        item = items.setdefault(
            sample["doc_id"],
            {
                "item": sample["doc_id"],
                "target": sample["target"],
                "responses": sample["filtered_resps"],
                "values": {},
                "sha256": sample["doc_hash"],
                "prompt_sha256": sample["prompt_hash"],
            },
        )
        suffix = "" if sample["filter"] == "none" else f",{sample['filter']}"
        item["values"] |= {f"{metric}{suffix}": sample[metric] for metric in sample["metrics"]}
    return [items[number] for number in sorted(items)]


def _score(name: str, task: Any, raw: Mapping[str, Any], items: list[Item], source: Mapping[str, Any]) -> Score:
    results = {key.removesuffix(",none"): value for key, value in raw["results"][name].items() if "," in key}
    metrics = {}
    for metric, value in results.items():
        values = [item["values"][metric] for item in items if metric in item["values"]]
        if values and isinstance(value, int | float):
            base = metric.partition(",")[0]
            higher = raw["higher_is_better"].get(name, {}).get(base)
            metrics[metric] = {"value": float(value), "stderr": standard_error(values, value), "higher": higher}
    choices = [len(item["responses"]) for item in items] if task.OUTPUT_TYPE == "multiple_choice" else []
    config = task.config
    prompt = {key: getattr(config, key) for key in ("description", "doc_to_text", "doc_to_choice", "doc_to_target")}
    return {
        "task": name,
        "metrics": metrics,
        "items": len(items),
        "available": len(task.eval_docs),
        "shots": config.num_fewshot,
        "version": task.VERSION,
        "prompt": {key: getattr(value, "__name__", value) for key, value in prompt.items() if value not in (None, "")},
        "source": dict(source),
        **_chance(metrics, choices),
    }


def _chance(metrics: Mapping[str, Any], choices: Sequence[int]) -> dict[str, Any]:
    """What guessing would score, and whether the accuracies can be told from it; None where nothing is chosen."""
    if not choices:
        return {"chance": None, "at_chance": []}
    shares = 1 / np.asarray(choices, dtype=np.float64)
    error = math.sqrt(float((shares * (1 - shares)).sum())) / len(shares)
    return _beside_chance(metrics, float(shares.mean()), error)


def _beside_chance(metrics: Mapping[str, Any], chance: float, error: float) -> dict[str, Any]:
    """`chance` with its standard error, and which accuracies are not above it; other metrics have another chance."""
    accuracies = {name: each["value"] for name, each in metrics.items() if name.startswith("acc")}
    near = [name for name, value in accuracies.items() if value - chance <= CHANCE_Z * error]
    return {"chance": chance, "chance_stderr": error, "at_chance": near}


def standard_error(values: Sequence[Any], aggregate: float) -> float | None:
    """Of a mean, a perplexity exp(-mean), or a ratio of sums and its perplexity; None for any other aggregate.

    `values` [items] are numbers, or pairs (nats, words or bytes).
    """
    rows = np.asarray(values, dtype=np.float64)
    n = len(rows)
    if n < 2 or rows.ndim > 2:
        return None
    if rows.ndim == 1:
        mean, error = float(rows.mean()), float(rows.std(ddof=1)) / math.sqrt(n)
    else:
        mean = float(rows[:, 0].sum() / rows[:, 1].sum())
        rest = (rows[:, 0] - mean * rows[:, 1]) / rows[:, 1].mean()
        error = math.sqrt(float((rest**2).sum()) / (n - 1) / n)
    slopes = {mean: 1.0, math.exp(-mean) if mean > -700 else math.inf: aggregate, -mean / math.log(2): 1 / math.log(2)}
    return next((slope * error for value, slope in slopes.items() if math.isclose(value, aggregate)), None)


def _grouped(
    name: str, results: Mapping[str, Any], parts: Mapping[str, tuple[Score, list[Item]]]
) -> tuple[Score, list[Item]]:
    """A group as its tasks' mean; its items are theirs, each naming its task."""
    scores = {part: score for part, (score, _) in parts.items()}
    first = next(iter(scores.values()))
    shared = [metric for metric in first["metrics"] if f"{metric},none" in results]
    metrics = {}
    for metric in shared:
        errors = [score["metrics"][metric]["stderr"] for score in scores.values()]
        known = all(error is not None for error in errors)
        metrics[metric] = {
            "value": float(results[f"{metric},none"]),
            "stderr": math.sqrt(sum(error**2 for error in errors)) / len(errors) if known else None,
            "higher": first["metrics"][metric]["higher"],
        }
    chances = [score["chance"] for score in scores.values()]
    score: Score = {
        **first,
        "task": name,
        "metrics": metrics,
        "items": sum(each["items"] for each in scores.values()),
        "available": sum(each["available"] for each in scores.values()),
        "truncated": sum(each["truncated"] for each in scores.values()),
        "source": {part: each["source"] for part, each in scores.items()},
        "parts": {part: each["metrics"] for part, each in scores.items()},
    }
    if None not in chances:
        error = math.sqrt(sum(each["chance_stderr"] ** 2 for each in scores.values())) / len(scores)
        score |= _beside_chance(metrics, sum(chances) / len(chances), error)
    return score, [{"task": part, **item} for part, (_, items) in parts.items() for item in items]
