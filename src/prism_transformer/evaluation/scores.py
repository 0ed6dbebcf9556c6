"""Scores kept on disk, each with its items and everything that it depends on.

FOLDER/piqa.json      the scores, and the task's version, prompt, shots, items, data and BOS policy behind them
FOLDER/piqa.jsonl     every item: what the model said, and what that is worth
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..checkpoint import step_name
from ..errors import InputError
from ..files import read_json, write_json, write_text
from .loading import LoadedModel

Score = dict[str, Any]
Item = dict[str, Any]


def score_settings(
    loaded: LoadedModel, *, data: str, limit: int | None, shots: int | None, dtype: str
) -> dict[str, Any]:
    """What a score depends on, beside the task; `data` tells its items from others."""
    return {
        "model": loaded.describe(),
        "data": data,
        "limit": limit,
        "shots_asked": shots,
        "dtype": dtype,
        "harness": f"lm_eval {version('lm_eval')}",
    }


def write_score(folder: Path, score: Score, items: Sequence[Item], settings: Mapping[str, Any]) -> Path:
    """Keep a score and its items in `folder`, the items first: a score that is there is whole.

    Raises InputError where another one is there.
    """
    path = folder / f"{file_name(score['task'], settings)}.json"
    refuse_another(path)
    write_text(path.with_suffix(".jsonl"), "".join(json.dumps(item) + "\n" for item in items))
    write_json(path, score | {"settings": dict(settings)})
    return path


def refuse_another(path: Path) -> None:
    """Make the folder of a new result. Raises InputError where the file is there: what was found is not overwritten."""
    if path.exists():
        raise InputError(f"{path} holds a result of other settings; give another folder with --out, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)


def read_score(folder: Path, task: str, settings: Mapping[str, Any]) -> tuple[Score, list[Item]] | None:
    """A kept score of the same settings with its items; None where none is there, or only one of other settings."""
    path = folder / f"{file_name(task, settings)}.json"
    if not path.exists():
        return None
    score = read_json(path)
    if score.pop("settings", None) != json.loads(json.dumps(settings)):
        return None
    return score, read_items(path.with_suffix(".jsonl"))


def read_items(path: Path) -> list[Item]:
    """The items of a score. Raises InputError naming the line of one that was damaged."""
    items = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; score the task again") from None
    for number, line in enumerate(lines, start=1):
        try:
            items.append(json.loads(line))
        except ValueError:
            raise InputError(f"{path}, line {number}: no JSON; remove {path.stem}.json and score it again") from None
    return items


def file_name(task: str, settings: Mapping[str, Any]) -> str:
    """piqa, piqa-first-200, piqa-5-shot: partial scores stand beside the whole one."""
    name = re.sub(r"[^\w.-]+", "-", task)
    name += f"-{settings['shots_asked']}-shot" if settings["shots_asked"] else ""
    return name + (f"-first-{settings['limit']}" if settings["limit"] else "")


def place_of(loaded: LoadedModel, out: Path | None) -> Path:
    """The folder for what is found out about a model: in its run, below `out`, or below ./evaluations."""
    if out is None and loaded.run is not None and loaded.step is not None:
        return loaded.run / "evaluation" / step_name(loaded.step)
    name = loaded.name if loaded.seed is not None else loaded.path.resolve().name
    return (out or Path("evaluations")) / re.sub(r"[^\w.-]+", "-", name).strip("-")
