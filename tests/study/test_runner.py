"""The processes of a study: started, stopped, listened to and judged, with scripts in the place of real workers."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prism_transformer.errors import InputError, RunError, Stopped
from prism_transformer.study import runner, workers
from prism_transformer.study.folder import Study
from prism_transformer.study.plan import StudySettings
from prism_transformer.study.runner import Progress, ProgressReader, crowding, job_count, run_study
from prism_transformer.study.workers import Workers
from prism_transformer.training.recipe import DeviceSettings

Begin = Callable[..., Study]
Script = Callable[[str], None]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the workers of these tests are shell scripts")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """script(body): what a worker process does from now on; $3 is the study's folder and $4 the parent."""
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.05)

    def of(body: str) -> None:
        path = tmp_path / "worker.sh"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return of


FINISHED = """for run in uniform/seed-0 prism/seed-0 uniform/seed-1 prism/seed-1; do
  mkdir -p $3/runs/$run
  echo '{"step": 10, "tokens": 640, "seconds": 1.0, "val_loss": 3.5, "final": true}' > $3/runs/$run/metrics.jsonl
done
"""


def signalled(number: int, marks: list[Path]) -> threading.Thread:
    """Send a signal to this process once every worker has begun."""

    def wait_and_send() -> None:
        while not all(mark.exists() for mark in marks):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    return thread


def test_workers_finish_the_study_and_what_they_say_reaches_the_user_once(
    begin: Begin, script: Script, tmp_path: Path
) -> None:
    script(f"echo 'say: device cpu'; echo 'a line for the log'; echo 'say: device cpu'; {FINISHED}")
    study = begin(tmp_path / "study", jobs=2)
    said: list[str] = []
    seen: list[Progress] = []
    progress = run_study(study, on_progress=seen.append, say=said.append)
    assert progress.is_complete and seen[-1] == progress
    assert progress.tokens == dict.fromkeys(study.runs, 640)
    assert said == ["device cpu"]
    assert len(list((tmp_path / "study/logs").iterdir())) == 2

    assert run_study(study, say=said.append).is_complete
    assert said[1:] == [f"all 4 runs of {tmp_path / 'study'} are finished: nothing is left to train"]


def test_no_more_workers_than_runs(begin: Begin, script: Script, tmp_path: Path) -> None:
    script(FINISHED)
    run_study(begin(tmp_path / "study", jobs=50), say=print)
    assert len(list((tmp_path / "study/logs").iterdir())) == 4


HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # where there is none, the module must import all the same


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (HANGUP, 75)])
def test_a_signal_reaches_each_worker_once_and_it_may_save(
    begin: Begin, script: Script, tmp_path: Path, number: int, code: int
) -> None:
    script(f"trap 'echo say: saved $$ $PPID; exit {code}' INT TERM\ntouch $3/begun-$$\nwhile true; do sleep 0.05; done")
    study = begin(tmp_path / "study", jobs=2)
    before = signal.getsignal(number)
    said: list[str] = []

    def both_begun() -> None:
        while len(list(study.folder.glob("begun-*"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=both_begun)
    thread.start()
    with pytest.raises(Stopped) as caught:
        run_study(study, say=said.append)
    thread.join()
    assert caught.value.exit_code == code
    assert "0 of 4 runs are finished and safe; the same command goes on" in str(caught.value)
    assert said[0].startswith("stopping: the runs save where they are")
    assert len(said) == 3 and all(sentence.startswith("saved") for sentence in said[1:])
    assert signal.getsignal(number) is before


def test_a_terminals_interrupt_does_not_reach_the_workers_a_second_time(
    begin: Begin, script: Script, tmp_path: Path
) -> None:
    script(f"ps -o pgid= -p $$ > $3/group; {FINISHED}")
    study = begin(tmp_path / "study", jobs=1)
    run_study(study, say=print)
    assert int((study.folder / "group").read_text()) != os.getpgrp()


def test_a_second_signal_kills_workers_that_do_not_end(begin: Begin, script: Script, tmp_path: Path) -> None:
    script("trap 'touch $3/heard' INT\ntouch $3/begun\nwhile true; do sleep 0.05; done")
    study = begin(tmp_path / "study", jobs=1)
    threads = [signalled(signal.SIGINT, [study.folder / name]) for name in ("begun", "heard")]
    with pytest.raises(Stopped) as caught:
        run_study(study, say=print)
    for thread in threads:
        thread.join()
    assert caught.value.exit_code == 130


def test_no_worker_outlives_an_error_here(begin: Begin, script: Script, tmp_path: Path) -> None:
    script("trap 'touch $3/saved; exit 75' TERM\ntouch $3/begun\nwhile true; do sleep 0.05; done")
    study = begin(tmp_path / "study", jobs=1)

    def fail(progress: Progress) -> None:
        if (study.folder / "begun").exists():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_study(study, on_progress=fail)
    assert (study.folder / "saved").exists()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("echo 'error: one\n  line more'; echo 'error: another'; exit 2", InputError, "one\n  line more\nanother"),
        ("echo 'error: the disk is full'; exit 3", RunError, "the disk is full\n0 of 4 runs are finished and safe"),
        ("kill -9 $$", RunError, "SIGKILL ended a worker"),
        ("echo Traceback; echo ZeroDivisionError; exit 1", RuntimeError, "Traceback\nZeroDivisionError\n0 of 4 runs"),
        ("exit 0", RunError, "runs are left that no worker could train"),
        ("kill -INT $PPID", Stopped, "the same command goes on"),
        ("exit 75", Stopped, "a worker was stopped"),
    ],
)  # fmt: skip
def test_what_ended_the_workers_ends_the_study(
    begin: Begin, script: Script, tmp_path: Path, body: str, kind: type[Exception], message: str
) -> None:
    script(body)
    with pytest.raises(kind) as caught:
        run_study(begin(tmp_path / "study", jobs=1), say=print)
    assert type(caught.value) is kind and message in str(caught.value)


def test_a_worker_that_failed_does_not_matter_where_another_finished_the_study(
    begin: Begin, script: Script, tmp_path: Path
) -> None:
    script(f"mkdir $3/first 2>/dev/null && kill -9 $$\nsleep 0.2\n{FINISHED}")
    assert run_study(begin(tmp_path / "study", jobs=2), say=print).is_complete


def test_no_worker_is_left_where_the_signal_came_while_they_were_started(script: Script, tmp_path: Path) -> None:
    script("sleep 60")
    with Workers(tmp_path, gpus=0) as workers:
        os.kill(os.getpid(), signal.SIGTERM)
        workers.start(2)
        began = time.monotonic()
        while workers.are_alive():
            time.sleep(0.02)
    assert workers.stopped_by == 75 and time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1", "0"]), ("5,7", ["5", "7", "5"]), ("A,B", ["A", "B", "A"])]
)
def test_each_worker_has_one_of_the_visible_gpus(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    script('echo "say: $$ $CUDA_VISIBLE_DEVICES"')
    with Workers(tmp_path, gpus=2) as workers:
        workers.start(3)
        while workers.are_alive():
            time.sleep(0.02)
    assert [sentence.split()[1] for sentence in workers.sentences()] == expected


def test_progress_never_says_done_without_the_final_record(finished: Study) -> None:
    """A run may end between two readings of its metrics."""
    reader = ProgressReader(finished)
    run = finished.runs[0]
    path = finished.run_folder(run) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    records = finished.records

    def ends_meanwhile(of: object) -> list[dict[str, object]]:
        found = records(of)  # type: ignore[arg-type]
        path.write_text("".join(lines))
        return found

    finished.records = ends_meanwhile  # type: ignore[method-assign, assignment]
    first, second = reader.read(), reader.read()
    assert first.statuses[run] == "pending" and first.finished == 3
    assert second.statuses[run] == "done" and "val_loss" in second.last[run]


@pytest.mark.parametrize(
    ("jobs", "threads", "count"), [(None, 1, 4), (None, 3, 1), (None, 8, 1), (None, None, 1), (7, 1, 7)]
)
def test_runs_side_by_side_fill_the_cores(
    monkeypatch: pytest.MonkeyPatch, jobs: int | None, threads: int | None, count: int
) -> None:
    monkeypatch.setattr(runner, "available_cores", lambda: 4)
    assert job_count(StudySettings(jobs=jobs), DeviceSettings(device="cpu", threads=threads)) == count


def test_more_threads_than_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "available_cores", lambda: 4)
    cpu = DeviceSettings(device="cpu", threads=2)
    assert crowding(2, cpu) is None
    assert "3 runs side by side with 2 threads each on 4 cores" in str(crowding(3, cpu))
    assert "2 runs side by side with 4 threads each" in str(crowding(2, replace(cpu, threads=None)))
    assert crowding(1, replace(cpu, threads=8)) is None, "which the run itself says"
