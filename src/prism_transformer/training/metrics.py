"""metrics.jsonl, the record of a run, and the one place where tokens per second are computed."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError

METRICS = "metrics.jsonl"


class Metrics:
    """Appends one JSON object a line, and keeps only the lines up to the step that a run resumes from."""

    def __init__(self, path: Path, *, resumed_step: int) -> None:
        kept = [record for record in read_metrics(path) if record["step"] <= resumed_step] if path.exists() else []
        path.write_text("".join(_line(record) for record in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(_line(record))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line without its end (a run killed while writing) is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            raise InputError(f"{path}, line {number}: no JSON; remove the line if the file was edited") from None
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

    def stop(self) -> None:
        self._seconds, self._since = self.seconds, None

    def start(self) -> None:
        self._since = self._clock()


def tokens_per_second(tokens: int, seconds: float) -> float | None:
    """Tokens over the seconds of the same window; None for an empty window."""
    return tokens / seconds if seconds > 0 else None
