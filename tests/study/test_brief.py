"""A study in a few figures, from folders written by hand."""

import json
import os
import socket
from datetime import datetime

import pytest

from prism_transformer.cli import main
from prism_transformer.study.brief import brief, brief_lines
from prism_transformer.training.run_lock import is_held


@pytest.fixture
def study(begin, tmp_path):
    """Four runs of 640 tokens: one done, one diverged, one half-way, one waiting."""
    study = begin(tmp_path / "study")
    done, diverged, half, _ = study.runs
    training = {"step": 5, "tokens": 320, "seconds": 1.0, "loss": 4.25, "tokens_per_second": 320.0}
    write(study, done, training, {"step": 10, "tokens": 640, "seconds": 2.0, "val_loss": 4.0, "final": True})
    write(study, diverged, {"step": 7, "tokens": 448, "seconds": 1.0, "diverged": True})
    write(study, half, training)
    return study


def write(study, run, *records):
    folder = study.run_folder(run)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def hold(study, owner: str) -> None:
    (study.run_folder(study.runs[2]) / ".lock-owner").write_text(owner)


def test_a_study_that_stands(study):
    found = brief(study)
    assert (found.runs, found.done, found.diverged, len(found.running), found.waiting) == (4, 1, 1, 0, 2)
    assert found.remaining_seconds is None
    lines = brief_lines(found, study.folder, datetime(2026, 1, 1, 12))
    assert lines[0] == f"study {study.folder.name} (recipe tiny): 1 of 4 runs done, 1 diverged"
    assert "nothing runs: go on with prism compare --out" in lines[-1]


def test_a_study_that_runs(study):
    """320 + 640 tokens are left, at 320 a second."""
    hold(study, f"process {os.getpid()} on {socket.gethostname()}")
    found = brief(study)
    assert found.remaining_seconds == pytest.approx(3.0) and found.waiting == 1
    lines = brief_lines(found, study.folder, datetime(2026, 1, 1, 23, 59, 58))
    assert f"{study.runs[2].arm} seed {study.runs[2].seed}, step 5/10, loss 4.2500, 320 tokens/s" in lines[1]
    assert "ends: in about 3 s, at 00:00 on 2026-01-02" in lines[-1]
    assert found.mapping()["running"][0]["step"] == 5


def test_a_study_whose_runs_have_just_begun_is_neither_standing_nor_finished(begin, tmp_path):
    """Running, before the first line of metrics: with a run that waits, and with none."""
    study = begin(tmp_path / "new")
    for begun in (study.runs[:1], study.runs):
        for run in begun:
            study.run_folder(run).mkdir(parents=True, exist_ok=True)
            owner = f"process {os.getpid()} on {socket.gethostname()}"
            (study.run_folder(run) / ".lock-owner").write_text(owner)
        lines = brief_lines(brief(study), study.folder, datetime(2026, 1, 1, 12))
        assert sum(line.startswith("  running: ") for line in lines) == len(begun)
        assert lines[-1] == "  ends: not known before the first steps are measured"
        assert not any("nothing runs" in line or "finished" in line for line in lines)


def test_a_lock_of_a_dead_process_does_not_count(study):
    hold(study, f"process {2**22 + 1} on {socket.gethostname()}")
    assert brief(study).running == ()


def test_a_run_of_another_machine_counts_while_it_writes(study):
    hold(study, "process 1 on elsewhere")
    run = study.run_folder(study.runs[2])
    assert is_held(run)
    for name in (".lock-owner", "metrics.jsonl"):
        os.utime(run / name, (0, 0))
    assert not is_held(run)


def test_the_command(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    before = sorted(path.name for path in study.folder.iterdir())
    assert main(["report", str(study.folder), "--brief"]) == 0
    assert "(recipe tiny): 1 of 4 runs done, 1 diverged\n" in capsys.readouterr().out
    assert main(["report", str(study.folder), "--brief", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"] == 2
    assert sorted(path.name for path in study.folder.iterdir()) == before  # nothing was judged or written
