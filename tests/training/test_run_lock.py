"""One process holds a run; whatever ends it, nobody waits for it afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from prism_transformer.errors import InputError
from prism_transformer.training.run_lock import InUseError, is_held, locked
from prism_transformer.training.state import RunFolder


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def test_a_run_in_use_is_refused_with_its_owner_and_free_again_afterwards(tmp_path):
    run = RunFolder(tmp_path / "run")
    sentence = rf"run is in use by process {os.getpid()} on .*; wait for it, or stop it"
    with locked(run.path):
        with pytest.raises(InUseError, match=sentence), locked(tmp_path / "run"):
            pass
        (run.path / "recipe.yaml").touch()
    with locked(run.path):
        pass


def test_a_folder_that_another_process_removes_meanwhile_is_said_to_be_in_use(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")

    def acquire(lock, timeout):
        run.path.rmdir()
        raise FileNotFoundError(2, "No such file or directory", lock.lock_file)

    monkeypatch.setattr("filelock.FileLock.acquire", acquire)
    with pytest.raises(InUseError, match="run was just given up by another process; run it again"), locked(run.path):
        pass


def test_a_run_that_ends_while_it_is_looked_at_is_free(tmp_path, monkeypatch):
    (tmp_path / ".lock-owner").write_text("process 1 on elsewhere")
    assert is_held(tmp_path)  # of another machine, and written just now
    monkeypatch.setattr(Path, "stat", lambda self, **_: (_ for _ in ()).throw(FileNotFoundError(2, "gone")))
    assert not is_held(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "read_text", lambda self, **_: (_ for _ in ()).throw(FileNotFoundError(2, "gone")))
    assert not is_held(tmp_path)


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(1); sys.stdin.read()"
    run = RunFolder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(InUseError, match="in use by another process"), locked(run.path):
            pass
        process.kill()
    with locked(run.path):
        pass


def test_a_folder_that_is_no_run_is_refused_and_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "data").mkdir()
    before = tree(tmp_path)
    sentence = r"holds something else \(thesis\.tex\); use a new folder"
    with pytest.raises(InputError, match=sentence), locked(tmp_path):
        pass
    assert tree(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("text")
    for path, message in (("run", "is a file; give a folder"), ("run/inner", "cannot be used: Not a directory")):
        with pytest.raises(InputError, match=message), locked(tmp_path / path):
            pass
    assert (tmp_path / "run").read_text() == "text"


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_left_where_nothing_was_written(tmp_path, exists):
    path = tmp_path / "run"
    if exists:
        path.mkdir()
    with pytest.raises(ZeroDivisionError), locked(path):
        raise ZeroDivisionError
    assert path.exists() == exists
    assert tree(tmp_path) == ({"run": None} if exists else {})


def test_the_lock_file_is_the_one_that_filelock_takes(tmp_path):
    """So that any process that shares the folder, of whatever version, respects it."""
    (tmp_path / "recipe.yaml").touch()
    with FileLock(tmp_path / ".lock"), pytest.raises(InUseError), locked(tmp_path):
        pass
