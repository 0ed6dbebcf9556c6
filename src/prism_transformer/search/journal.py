"""Optuna's journal in one file, safe for workers that are killed or frozen at any moment.

Optuna's own file backend guards the file by a link that a killed worker leaves behind: the others wait half a minute
for it, and a worker that was frozen for longer finds its lock taken away. Here the system holds the lock, so it ends
with the process. And a line of which a killed worker wrote only a part is taken away before the next is appended.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock
from optuna.storages.journal import BaseJournalBackend


class Journal(BaseJournalBackend):
    """One JSON object a line; every line is one operation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))
        path.touch()
        self._offsets = [0]
        """Where the lines begin that were read so far, and the next one."""

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The operations from a number on; a last line without its end was not written."""
        number = min(log_number_from, len(self._offsets) - 1)
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                number += 1
                if number == len(self._offsets):
                    self._offsets.append(self._offsets[-1] + len(line))
                if number > log_number_from:
                    yield json.loads(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._lock, self._path.open("rb+") as file:
            file.truncate(_end_of_last_line(file))
            file.seek(0, os.SEEK_END)
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def _end_of_last_line(file: Any) -> int:
    """Where the last whole line ends."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return int(start + found + 1)
        end = start
    return 0
