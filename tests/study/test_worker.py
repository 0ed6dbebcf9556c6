"""One worker: every run once, whatever others do and however it ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from prism_transformer.errors import RunError, Stopped, ending
from prism_transformer.study import worker
from prism_transformer.study.folder import Study
from prism_transformer.study.worker import main, work
from prism_transformer.training.loop import Session
from prism_transformer.training.run_lock import locked

Begin = Callable[..., Study]


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file below a folder, with its date."""
    files = [path for path in folder.glob("**/*") if path.is_file() and not path.name.startswith(".")]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def quiet(sentence: str) -> None:
    pass


def test_a_finished_study_has_every_run_and_is_not_touched_again(finished: Study) -> None:
    assert [finished.status(run) for run in finished.runs] == ["done"] * 4
    before = contents(finished.folder / "runs")
    assert work(finished, say=quiet) == 0
    assert contents(finished.folder / "runs") == before


def test_only_the_runs_that_an_extension_adds_are_trained(begin: Begin, finished: Study) -> None:
    before = contents(finished.folder / "runs")
    more = begin(finished.folder, seeds=3)
    assert work(more, say=quiet) == 2
    after = contents(finished.folder / "runs")
    assert {path: after[path] for path in before} == before
    assert [more.status(run) for run in more.runs] == ["done"] * 6


def test_runs_are_trained_in_the_order_of_the_plan(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begin(tmp_path)
    trained = []
    monkeypatch.setattr(worker, "_train", lambda study, run, corpus, say: trained.append(run) or end_of(study, run))

    def end_of(study: Study, run: object) -> bool:
        folder = study.run_folder(run)
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text('{"step": 1, "final": true}\n')
        return True

    assert work(study) == 4
    assert trained == study.runs


def test_a_run_that_another_process_holds_is_waited_for_and_taken_over(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WAIT_SECONDS", 0.05)
    study = begin(tmp_path, seeds=1)
    first = study.runs[0]
    held, die = threading.Event(), threading.Event()

    def other_process() -> None:
        with locked(study.run_folder(first)):
            held.set()
            die.wait(60)  # without having finished the run

    def when_it_waits(seconds: float) -> None:
        assert study.status(study.runs[1]) == "done", "what is free comes first"
        die.set()

    monkeypatch.setattr(worker.time, "sleep", when_it_waits)
    thread = threading.Thread(target=other_process)
    thread.start()
    held.wait(60)
    assert work(study, say=quiet) == 2
    thread.join()
    assert study.status(first) == "done"


def test_a_diverged_run_is_told_and_the_others_go_on(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path, seeds=1, lr=(1e9, 3e-3))
    said: list[str] = []
    assert work(study, say=said.append) == 4
    assert [study.status(run) for run in study.runs] == ["diverged", "done", "diverged", "done"]
    told = [sentence for sentence in said if "diverged" in sentence]
    assert len(told) == 2 and told[0].startswith("uniform, seed 0: ") and "at step 2" in told[0]
    assert work(study, say=quiet) == 0, "a diverged run is finished"


def test_a_worker_whose_parent_died_begins_no_run(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path)
    assert work(study, parent=os.getppid() + 1) == 0
    assert not (tmp_path / "runs").exists()


def test_what_was_said_about_the_text_is_not_said_for_each_run(begin: Begin, tmp_path: Path) -> None:
    said: list[str] = []
    work(begin(tmp_path, seeds=1, calibrate=True, arms=("uniform",)), say=said.append)
    assert said, "the device and its type are said"
    assert not [sentence for sentence in said if sentence.startswith("text:") or "epochs" in sentence]


def test_a_signal_in_the_last_evaluation_ends_the_worker_at_once(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begin(tmp_path)
    finish = Session.finish

    def signalled(session: Session) -> object:
        signal.raise_signal(signal.SIGTERM)
        return finish(session)

    monkeypatch.setattr(Session, "finish", signalled)
    with pytest.raises(Stopped) as caught:
        work(study, say=quiet)
    assert caught.value.exit_code == 75
    assert [study.status(run) for run in study.runs] == ["pending"] * 4  # the first has saved its last step


def test_a_stopped_study_goes_on_to_the_same_losses(
    begin: Begin, finished_once: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begin(tmp_path)
    log, logged = Session.log, []

    def signalled(session: Session) -> None:
        log(session)
        logged.append(session.step)
        if len(logged) == 14:  # in the second run
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Session, "log", signalled)
    with pytest.raises(Stopped) as caught:
        work(study, say=quiet)
    assert caught.value.exit_code == 130
    assert [study.status(run) for run in study.runs] == ["done", "pending", "pending", "pending"]
    assert work(study, say=quiet) == 3
    assert [study.result(run).val_loss for run in study.runs] == [
        finished_once.result(run).val_loss for run in finished_once.runs
    ]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk, as root on Linux")
def test_a_full_disk_ends_the_worker_and_the_same_study_goes_on(begin: Begin, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        study = begin(disk / "study", seeds=4)
        with pytest.raises((RunError, OSError)) as caught:
            work(study, say=quiet)
        code, sentences = ending(caught.value) or (1, ())
        assert code == 3 and "no space left on" in sentences[0].lower()
        done = [run for run in study.runs if study.status(run) == "done"]
        assert 0 < len(done) < 8
        before = contents(study.run_folder(done[0]))

        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        assert work(study, say=quiet) == 8 - len(done)
        assert contents(study.run_folder(done[0])) == before
        assert [study.status(run) for run in study.runs] == ["done"] * 8
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RunError("the disk is full"), 3, "error: the disk is full"),
        (OSError(28, "No space left on device"), 3, "error: the disk: No space left on device"),
        (Stopped("stopped at step 3", 75), 75, "error: stopped at step 3"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
)
def test_a_worker_ends_with_the_codes_of_the_command_line(
    finished_once: Study,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(study: Study, **options: object) -> int:
        raise error

    monkeypatch.setattr(worker, "work", fail)
    assert main([str(finished_once.folder)]) == code
    assert capsys.readouterr().out.startswith(said)


def test_a_worker_of_no_study_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), str(os.getppid())]) == 2
    assert "is no study" in capsys.readouterr().out


def test_a_fault_of_ours_is_not_hidden(finished_once: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "work", lambda study, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([str(finished_once.folder)])
