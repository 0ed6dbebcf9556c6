"""metrics.jsonl, the record of a run, and the one place where tokens per second are computed."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..files import write_text

METRICS, ENVIRONMENT = "metrics.jsonl", "environment.json"
DOCUMENTS = "document_losses.json"
"""What each validation document contributes to the final loss: {"nats": [...], "tokens": [...]}."""


class Metrics:
    """Appends one JSON object a line, and keeps only the lines up to the step that a run resumes from."""

    def __init__(self, path: Path, *, resumed_step: int) -> None:
        records = read_metrics(path) if path.exists() else []
        self.kept = [record for record in records if record["step"] <= resumed_step and not record.get("diverged")]
        write_text(path, "".join(_line(record) for record in self.kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(_line(record))
        self._file.flush()

    def sync(self) -> None:
        """Bring all lines to the disk: a checkpoint must not outlast the lines before it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line without its end (a run killed while writing) is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise InputError(f"{path}, line {number}: no JSON object with a step; remove the line")
        records.append(record)
    return records


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


class Stopwatch:
    """Seconds of training: the clock stands while something else (evaluation, saving) is done."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: float | None = clock()

    @property
    def seconds(self) -> float:
        return self._seconds + (self._clock() - self._since if self._since is not None else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands inside, and goes on afterwards whatever happened."""
        self._seconds, self._since = self.seconds, None
        try:
            yield
        finally:
            self._since = self._clock()


def tokens_per_second(tokens: int, seconds: float) -> float | None:
    """Tokens over the seconds of the same window; None for an empty window."""
    return tokens / seconds if seconds > 0 else None


class Window:
    """What happened since the last line of metrics."""

    def __init__(self, losses: Sequence[float], seconds: float, batches: str) -> None:
        self.seconds = seconds
        """At the last line."""
        self.losses = list(losses)
        self.batches = batches
        """A hash of all batches so far: of the hash before it and the ids of the batch."""
        self.lr = self.norm = 0.0

    def see(self, batch: npt.NDArray[np.int64]) -> str:
        """The hash after one more batch; it counts once the step is added."""
        return hashlib.sha256(self.batches.encode() + batch.tobytes()).hexdigest()

    def add(self, loss: float, lr: float, norm: float, batches: str) -> None:
        self.losses.append(loss)
        self.lr, self.norm, self.batches = lr, norm, batches

    def record(self, tokens_per_step: int, seconds: float) -> dict[str, Any]:
        speed = tokens_per_second(len(self.losses) * tokens_per_step, seconds - self.seconds)
        record = {
            "loss": sum(self.losses) / len(self.losses),
            "lr": self.lr,
            "grad_norm": self.norm,
            "tokens_per_second": speed,
            "batches": self.batches[:16],
        }
        self.seconds, self.losses = seconds, []
        return record
