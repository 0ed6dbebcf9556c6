"""`evaluate`: one trained model on tasks and on text, with everything kept that a later comparison needs."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from .comparison import ScoredRun
from .loading import LoadedModel, load
from .loss import loss_by_position, text_loss, token_losses
from .scores import place_of, read_score, score_settings, write_score
from .text import read_text
from .zero_shot import open_tasks, score_tasks

if TYPE_CHECKING:
    from .harness_tasks import LoadedTasks


@dataclass(frozen=True, kw_only=True)
class Computation:
    """How scores are computed; it changes the time, and with the type the last digits."""

    device: torch.device | str = "cpu"
    dtype: str = "float32"
    """Type of the matrix products."""
    batch_size: int = 16
    autocast: Callable[[], AbstractContextManager[object] | None] = lambda: None
    on_progress: Callable[[int, int], None] = lambda done, total: None
    """Called with the texts scored so far and in all."""


def evaluate(
    run: Path | str,
    *,
    tasks: Sequence[str] = (),
    text: Sequence[str] = (),
    data: Path | str | None = None,
    limit: int | None = None,
    shots: int | None = None,
    tokenizer: str | None = None,
    out: Path | str | None = None,
    computation: Computation | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Score a run, checkpoint or Hugging Face folder: {"model", "scores": {task: …}, "text": …}.

    Args:
        run: what `loading.load` takes.
        tasks: names of lm-evaluation-harness; "paper" means the paper's.
        text: files, folders, globs to measure the loss on.
        data: a folder with the tasks' items; what is not there comes from the hub's cache or the hub.
        limit: only the first items of each task.
        shots: examples in the prompt; None: the task's own number.
        tokenizer: for a folder without one.
        out: where scores and items are kept; by default in the run, else in ./evaluations.
        computation: device, type and batch size.
        say: called with sentences for the user.

    Raises:
        InputError: no such model, task, data or text; the model's identity fails; the extra `eval` is missing.
        DivergedError: the model answers with numbers that are not finite.
    """
    how = computation or Computation()
    loaded = load(run, tokenizer=tokenizer, device=how.device)
    found: dict[str, Any] = {"model": loaded.describe()}
    if text:
        found["text"], _ = evaluate_text(loaded, text, how)
    if tasks:
        with open_tasks(tasks, folder=Path(data) if data else None, shots=shots, say=say) as opened:
            place = place_of(loaded, Path(out) if out else None)
            runs = evaluate_tasks(loaded, opened, how, folder=place, limit=limit, shots=shots)
        found |= {"scores": {name: run.score for name, run in runs.items()}, "kept": str(place)}
    return found


def evaluate_text(
    loaded: LoadedModel, paths: Sequence[str], how: Computation, *, text_field: str = "text"
) -> tuple[dict[str, Any], ScoredRun]:
    """The loss on a text, in nats a token and bits per byte, and how it falls along the context; and the same with
    windows as items, to be paired with those of another model."""
    stream = read_text(paths, loaded.tokenizer, text_field=text_field)
    losses = token_losses(
        loaded.model, stream, context=loaded.context, batch_size=how.batch_size, autocast=how.autocast()
    )
    found = {
        **asdict(text_loss(losses, stream)),
        "origin": stream.where,
        "text_bytes": stream.text_bytes,
        "context": loaded.context,
        "by_position": [asdict(each) for each in loss_by_position(losses, context=loaded.context)],
    }
    ids = hashlib.sha256(f"{loaded.tokenizer.fingerprint} {loaded.context}".encode())
    for part in stream.parts:
        ids.update(part.tobytes())
    return found, ScoredRun(
        arm=loaded.arm, seed=loaded.seed, score=_TEXT_SCORE, items=_windows(losses, loaded.context, ids.hexdigest())
    )


_TEXT_SCORE: dict[str, Any] = {"task": "text", "metrics": {"nats_per_token": {}}}


def _windows(losses: npt.NDArray[np.float32], context: int, sha256: str) -> list[dict[str, Any]]:
    """Each window as an item: its nats and its tokens."""
    parts = [losses[start : start + context] for start in range(0, len(losses), context)]
    return [
        {"item": k, "sha256": sha256, "prompt_sha256": "", "values": {"nats_per_token": (float(part.sum()), len(part))}}
        for k, part in enumerate(parts)
    ]


def evaluate_tasks(
    loaded: LoadedModel,
    tasks: "LoadedTasks",
    how: Computation,
    *,
    folder: Path,
    limit: int | None = None,
    shots: int | None = None,
) -> dict[str, ScoredRun]:
    """The score of every task with its items, kept in `folder`; what was kept there before is not computed again."""
    settings = {
        name: score_settings(loaded, data=tasks.data(name), limit=limit, shots=shots, dtype=how.dtype)
        for name in tasks.names
    }
    kept = {name: read_score(folder, name, settings[name]) for name in tasks.names}
    missing = [name for name in tasks.names if kept[name] is None]
    if missing:
        fresh = score_tasks(
            loaded,
            tasks.only(missing),
            limit=limit,
            batch_size=how.batch_size,
            autocast=how.autocast(),
            on_progress=how.on_progress,
        )
        for name, (score, items) in fresh.items():
            write_score(folder, score, items, settings[name])
            kept[name] = read_score(folder, name, settings[name])
    return {
        name: ScoredRun(arm=loaded.arm, seed=loaded.seed, score=entry[0], items=entry[1])
        for name, entry in kept.items()
        if entry is not None
    }
