"""Work through a study with several processes, and tell how far it is from the files that they write."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Stopped
from ..machine import available_cores
from ..training.recipe import DeviceSettings
from .folder import Study, status_of
from .measured import Status
from .plan import RunKey, StudySettings
from .workers import Workers


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
            if status == "pending" and (records := self._study.records(run)):
                self._last[run] = records[-1]
                self._statuses[run] = status_of(records)
        tokens = {run: int(record["tokens"]) for run, record in self._last.items()}
        return Progress(dict(self._statuses), tokens, dict(self._last))


def run_study(
    study: Study,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = print,
) -> Progress:
    """Train every run that is left, in `jobs` processes, and return the final progress.

    Raises:
        InputError: a run cannot begin (its device is not here, its checkpoint was damaged).
        RunError: a run could not go on for another reason than a loss that is not finite (a full disk).
        Stopped: SIGINT, SIGTERM or SIGHUP; finished runs are safe and the others are saved where they were.
    """
    reader = ProgressReader(study)
    progress = reader.read()
    total = len(progress.statuses)
    if progress.is_complete:
        say(f"all {total} runs of {study.folder} are finished: nothing is left to train")
        return progress
    if progress.finished:
        say(f"{progress.finished} of {total} runs are finished: going on with the others")
    device = study.file.recipe.device
    jobs = min(total - progress.finished, job_count(study.file.study, device))
    if warning := crowding(jobs, device):
        say(warning)
    gpus = gpu_count() if device.device in ("auto", "cuda") else 0
    with Workers(study.folder, gpus=gpus) as workers:
        workers.watch(jobs, lambda: on_progress(reader.read()), say)
    progress = reader.read()
    safe = f"{progress.finished} of {total} runs are finished and safe; the same command goes on"
    if workers.stopped_by is not None:
        begun = sum(status == "pending" and run in progress.last for run, status in progress.statuses.items())
        saved = f", and {begun} that had begun are saved" if begun else ""
        judged = f"; `prism report {study.folder}` judges what is finished" if progress.finished else ""
        raise Stopped(f"stopped: {safe}{saved}{judged}", workers.stopped_by)
    if not progress.is_complete:
        raise workers.failure(safe)
    return progress


def job_count(settings: StudySettings, device: DeviceSettings) -> int:
    """Runs side by side: as asked, or one for each GPU, or as many as fit on the cores."""
    if settings.jobs is not None:
        return settings.jobs
    if device.device in ("auto", "cuda") and (gpus := gpu_count()):
        return gpus
    return max(1, available_cores() // device.threads) if device.threads else 1


def crowding(jobs: int, device: DeviceSettings) -> str | None:
    """A warning where runs side by side want more threads than there are cores."""
    cores = available_cores()
    threads = device.threads or cores  # what torch takes by default
    if jobs == 1 or jobs * threads <= cores or (device.device != "cpu" and gpu_count()):
        return None
    return (
        f"warning: {jobs} runs side by side with {threads} threads each on {cores} cores will wait for each other; "
        f"lower --jobs or --threads"
    )


def gpu_count() -> int:
    """CUDA devices here."""
    drivers = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' Linux
    if sys.platform == "linux" and not any(Path(driver).exists() for driver in drivers):
        return 0
    import torch  # slow, so only where there may be a GPU: a study is planned and watched without it

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
