"""SIGINT, SIGTERM, SIGHUP: noted, so that the run saves its state and ends; a second one ends the process at once."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ECHO_SECONDS = 2.0
"""A launcher (torchrun under Slurm or a terminal) hands on a signal that its processes have received themselves: within
this time the second one is the first, told twice."""


@contextmanager
def stop_signals(*, echo_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> Iterator[list[int]]:
    """Note the stopping signals in the list that this yields; a second one, after `echo_seconds`, ends the process."""
    noted: list[int] = []
    first = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not noted:
            first = clock()
            noted.append(number)
        elif clock() - first >= echo_seconds:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.signal(number, note) for number in stopping_signals()}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopping_signals() -> list[int]:
    """SIGINT, SIGTERM, and a closed terminal where it is not ignored (nohup)."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
