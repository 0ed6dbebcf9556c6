"""One worker's view of a search: it claims runs, shows that it lives, and finds those whose worker does not.

Where workers share the search's folder, a worker is dead when the system has let go of the lock that it held: no clock
is asked, and a frozen worker stays alive. Of a worker on another machine only its signs of life are seen: it is dead
when they have not changed for some minutes by this machine's clock.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from ..errors import RunError
from .ladder import RunId
from .storage import BEAT_SECONDS, Attempt, Records

WORKERS = "workers"
SILENT_SECONDS = 300.0
"""without a sign of life, after which a worker of another machine is taken for dead"""


class Queue:
    """The runs of a search for one worker, inside the context of which the worker counts as alive."""

    def __init__(
        self, records: Records, folder: Path, *, beat: float = BEAT_SECONDS, silent: float = SILENT_SECONDS
    ) -> None:
        self.records = records
        self.worker = uuid.uuid4().hex
        self._folder, self._beat, self._silent = folder / WORKERS, beat, silent
        self._lock = FileLock(self._folder / f"{self.worker}.lock")
        self._seen: dict[int, tuple[float, float]] = {}
        """attempt -> (its last sign of life, when this worker first saw it)"""

    def __enter__(self) -> "Queue":
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(RunError):  # a storage that cannot be reached: the lock says as much
            for attempt in self.records.attempts():
                if attempt.worker == self.worker and attempt.state == "running":  # stopped or failed: not ours any more
                    self.records.lose(attempt.number)
        self._lock.release()

    def claim(self, run: RunId) -> int | None:
        """Take a run: the number of the attempt, None where another worker has it."""
        return self.records.claim(run, self.worker, uuid.uuid4().hex)

    @contextmanager
    def alive(self, number: int) -> Iterator[None]:
        """Give signs of life for an attempt while it is trained."""
        ended = threading.Event()

        def give() -> None:
            while not ended.wait(self._beat):
                with suppress(RunError):  # the next sign may come through
                    self.records.beat(number)

        thread = threading.Thread(target=give, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def take_up_lost(self, attempts: list[Attempt]) -> bool:
        """Give up the attempts of dead workers, so that their runs can be claimed again; whether there were any."""
        lost = [each for each in attempts if each.state == "running" and self._is_dead(each)]
        for attempt in lost:
            self.records.lose(attempt.number)
        return bool(lost)

    def _is_dead(self, attempt: Attempt) -> bool:
        if attempt.worker == self.worker:
            return False
        path = self._folder / f"{attempt.worker}.lock"
        if path.exists():
            try:
                with FileLock(path, timeout=0):
                    return True
            except Timeout:
                return False
        last, since = self._seen.get(attempt.number, (None, 0.0))
        if last != attempt.beat:
            self._seen[attempt.number] = (attempt.beat, time.monotonic())
            return False
        return time.monotonic() - since > self._silent
