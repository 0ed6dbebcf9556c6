"""The lock of a run folder: one process has a run, which may end in any way and leave nothing that holds others up."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import InputError
from ..files import DATA, RECIPE, refuse_foreign
from .metrics import METRICS

LOCK, OWNER = ".lock", ".lock-owner"
QUIET_SECONDS = 900
"""A run of another machine whose metrics are older than this is taken to have stopped."""


class InUseError(InputError):
    """A live process has the run."""


@contextmanager
def locked(run: Path, *, wait: float = 0.0, say: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
    """Hold the run folder for this process, after at most `wait` seconds. Where no run begins, nothing is left of the
    lock and of a new, empty folder; what a killed process left of its own is told to `say`.

    Raises InUseError where a live process has the run, and InputError for a folder that holds something else.
    """
    refuse_foreign(run, mark=RECIPE, beside=(DATA,))
    is_new = not run.exists()
    lock, owner = FileLock(run / LOCK), run / OWNER
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait)
    except Timeout:
        name = _owner_of(run) or "another process"
        raise InUseError(f"{run} is in use by {name}; wait for it, or stop it") from None
    except FileNotFoundError:  # made here, and removed by a process that began no run in it
        raise InUseError(f"{run} was just given up by another process; run it again") from None
    except OSError as error:
        raise InputError(f"{run} cannot be used: {error.strerror}; choose another folder") from None
    try:
        if former := _owner_of(run):
            say(f"{run}: taken over from {former}, which has ended")
        owner.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()
        if not (run / RECIPE).exists():  # no run began here
            (run / LOCK).unlink(missing_ok=True)
            if is_new and not any(run.iterdir()):
                run.rmdir()


def is_held(run: Path) -> bool:
    """Whether a process has the run: the one that its lock names lives, or its metrics are still being written.

    Told from files alone: to try the lock would keep it from a process that wants the run at that moment.
    """
    name = _owner_of(run)
    if name is None:
        return False
    words = name.split()
    if len(words) == 4 and words[3] == socket.gethostname() and words[1].isdigit():
        return _lives(int(words[1]))
    written = [_modified(path) for path in (run / OWNER, run / METRICS)]
    return time.time() - max(written) < QUIET_SECONDS


def _owner_of(run: Path) -> str | None:
    """What the process that has the run wrote of itself; its end may take the file away at any moment."""
    try:
        return (run / OWNER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
