"""Work through a study with several processes, and tell how far it is from the files that they write."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, RunError, Stopped
from ..machine import available_cores
from .folder import Study
from .measured import Status
from .plan import RunKey

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """How far every run is, read from the study folder."""

    statuses: dict[RunKey, Status]
    tokens: dict[RunKey, int]
    last: dict[RunKey, dict[str, Any]]
    """The newest record of training or evaluation of each run that has begun."""

    @property
    def finished(self) -> int:
        return sum(status in ("done", "diverged") for status in self.statuses.values())

    @property
    def is_complete(self) -> bool:
        return self.finished == len(self.statuses)


class ProgressReader:
    """Reads the progress of a study again and again; a finished run is read once."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._statuses: dict[RunKey, Status] = dict.fromkeys(study.runs, "pending")
        self._last: dict[RunKey, dict[str, Any]] = {}

    def read(self) -> Progress:
        for run, status in self._statuses.items():
            if status == "pending":
                records = self._study.records(run)
                if records:
                    self._last[run] = records[-1]
                    self._statuses[run] = self._study.status(run)
        tokens = {run: int(record["tokens"]) for run, record in self._last.items()}
        return Progress(dict(self._statuses), tokens, dict(self._last))


def run_study(study: Study, *, on_progress: Callable[[Progress], None] = lambda progress: None) -> Progress:
    """Train every run that is left, in `jobs` processes, and return the final progress.

    Raises:
        RunError: a run could not go on for another reason than a loss that is not finite (a full disk).
        Stopped: SIGINT or SIGTERM; finished runs are safe and the others are saved where they were.
    """
    reader = ProgressReader(study)
    progress = reader.read()
    if progress.is_complete:
        return progress
    left = len(progress.statuses) - progress.finished
    with forwarded_signals() as workers:
        for number in range(min(left, job_count(study))):
            workers.append(_start_worker(study, number))
        while any(worker.poll() is None for worker in workers):
            on_progress(reader.read())
            time.sleep(POLL_SECONDS)
        codes = [worker.returncode for worker in workers]
    progress = reader.read()
    on_progress(progress)
    _raise_for(study, codes, progress)
    return progress


def job_count(study: Study) -> int:
    """Runs side by side: as asked, or one for each GPU, or as many as fit on the cores."""
    settings, device = study.file.study, study.file.recipe.device
    if settings.jobs is not None:
        return settings.jobs
    if device.device in ("auto", "cuda") and (gpus := _gpu_count()):
        return gpus
    return max(1, available_cores() // device.threads) if device.threads else 1


def _gpu_count() -> int:
    import torch  # only here: a study is planned and watched without it

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _start_worker(study: Study, number: int) -> "subprocess.Popen[bytes]":
    log = worker_log(study, number)
    log.parent.mkdir(exist_ok=True)
    environment = dict(os.environ)
    if study.file.recipe.device.device in ("auto", "cuda") and (gpus := _gpu_count()):
        environment["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "prism_transformer.study.worker", str(study.folder)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def worker_log(study: Study, number: int) -> Path:
    return study.folder / "logs" / f"worker-{number}.log"


@contextmanager
def forwarded_signals() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Yield the list of workers; while it is open, SIGINT and SIGTERM go to each of them, and a second one kills."""
    workers: list[subprocess.Popen[bytes]] = []
    seen: list[int] = []

    def forward(number: int, frame: object) -> None:
        for worker in workers:
            if worker.poll() is None:
                worker.kill() if seen else worker.send_signal(number)
        seen.append(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield workers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if seen:
        exit_code = 130 if seen[0] == signal.SIGINT else 75
        raise Stopped("stopped; finished runs are safe, and the same command goes on", exit_code)


def _raise_for(study: Study, codes: list[int], progress: Progress) -> None:
    """Turn the exit codes of the workers into one error, with what the worker that failed said last."""
    failed = [(number, code) for number, code in enumerate(codes) if code]
    if not failed:
        return
    number, code = failed[0]
    said = worker_log(study, number).read_text(encoding="utf-8", errors="replace").strip()
    errors = [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
    message = errors[-1] if errors else "\n".join(said.splitlines()[-15:])
    if code == 2:
        raise InputError(message)
    raise RunError(
        f"{message}\n{progress.finished} of {len(progress.statuses)} runs are finished and safe "
        f"(log: {worker_log(study, number)}); the same command goes on"
    )
