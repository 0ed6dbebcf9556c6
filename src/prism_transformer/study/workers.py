"""The processes that train a study's runs: how they are started, stopped and listened to."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..errors import InputError, RunError, Stopped, ending
from ..kernels.allocation import keep_freed_memory
from ..training.signals import stopping_signals

LOGS = "logs"
POLL_SECONDS = 0.5
SAY, ERROR = "say: ", "error: "
"""How the lines of a worker's log begin that are for the user."""


def run_as_worker(argv: Sequence[str], work: Callable[[Path, int | None, Callable[[str], None]], object]) -> int:
    """The main function of a worker: `work(folder, parent, say)` for the words FOLDER [PARENT]; returns its exit code.

    What is for the user goes to standard output, which is the log, in the form that `Workers` reads.
    """
    keep_freed_memory()
    folder, parent = Path(argv[0]), int(argv[1]) if len(argv) > 1 else None
    try:
        work(folder, parent, lambda sentence: print(f"{SAY}{sentence}", flush=True))
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if (end := ending(error)) is None:
            raise
        code, sentences = end
        for sentence in sentences:
            print(f"{ERROR}{sentence}", flush=True)
        return code


@dataclass(frozen=True)
class Worker:
    """One process, with the file that holds all it has written."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[str]:
        """The whole lines that it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]


class Workers:
    """The processes `python -m MODULE FOLDER PARENT` that work through the runs of a folder; none outlives the context.

    Inside the context SIGINT, SIGTERM and SIGHUP go to each of them, and they save and end; a second signal kills.
    """

    def __init__(self, folder: Path, *, gpus: int, module: str = "prism_transformer.study.worker") -> None:
        self._folder, self._gpus, self._module = folder, gpus, module
        self._workers: list[Worker] = []
        self._handlers: dict[int, Any] = {}
        self._told: set[str] = set()
        self.stopped_by: int | None = None
        """The exit code of a study that a signal has stopped."""

    def __enter__(self) -> "Workers":
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            self._handlers = {number: signal.signal(number, self._forward) for number in stopping_signals()}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            if worker.is_alive:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def watch(self, count: int, on_tick: Callable[[], None], say: Callable[[str], None]) -> None:
        """Start `count` workers, pass on what they say, and call `on_tick` now and then until all have ended, and once
        more after that."""
        self.start(count)
        is_over = False
        while not is_over:
            is_over = not self.are_alive()  # before the last look, so that nothing is missed
            for sentence in self.sentences():
                say(sentence)
            on_tick()
            if not is_over:
                time.sleep(POLL_SECONDS)

    def start(self, count: int) -> None:
        """Start `count` workers; none is left where a signal came meanwhile."""
        for number in range(count):
            self._workers.append(self._start(number))
        if self.stopped_by is not None:  # what began before the signal was noted has not heard it
            for worker in self._workers:
                worker.process.kill()

    def are_alive(self) -> bool:
        return any(worker.is_alive for worker in self._workers)

    def sentences(self) -> list[str]:
        """What the workers have said since the last call, each sentence once."""
        lines = [f"{SAY}stopping: the runs save where they are; once more ends them at once"] * bool(self.stopped_by)
        lines += [line for worker in self._workers for line in worker.lines() if line.startswith(SAY)]
        new = [line for line in dict.fromkeys(lines) if line not in self._told]
        self._told.update(new)
        return [line.removeprefix(SAY) for line in new]

    def failure(self, safe: str) -> Exception:
        """The error that ends a study whose workers have ended before its runs; `safe` says what is not lost."""
        failed = [worker for worker in self._workers if worker.process.returncode]
        if not failed:
            return RunError(f"runs are left that no worker could train; {safe}")
        worker = failed[0]
        code, lines = worker.process.returncode, worker.lines()
        errors = [each.strip() for each in re.split(f"^{ERROR}", "\n".join(lines), flags=re.MULTILINE)[1:]]
        if code == 2 and errors:
            return InputError(errors)
        if code == 3 and errors:
            return RunError("\n".join([*errors, safe]))
        if code in (75, 130):
            return Stopped(f"a worker was stopped: {safe}", code)
        if code < 0:
            name = signal.Signals(-code).name
            return RunError(f"{name} ended a worker, as the system does where memory runs out (SIGKILL); {safe}")
        return RuntimeError("\n".join([f"a worker failed, see {worker.log}", *lines[-15:], safe]))

    def _start(self, number: int) -> Worker:
        logs = self._folder / LOGS
        logs.mkdir(exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="worker-", suffix=".log", dir=logs)  # others may share the folder
        environment = dict(os.environ)
        if self._gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self._gpus)))
            environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number % self._gpus]
        with os.fdopen(descriptor, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._folder), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C reaches this process alone, which passes it on once
            )
        return Worker(process, Path(name))

    def _forward(self, number: int, frame: FrameType | None) -> None:
        for worker in self._workers:
            if not worker.is_alive:
                continue
            if self.stopped_by is not None:
                worker.process.kill()
            elif os.name == "posix":  # elsewhere a console's Ctrl-C has reached the workers already
                worker.process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        if self.stopped_by is None:
            self.stopped_by = 130 if number == signal.SIGINT else 75
