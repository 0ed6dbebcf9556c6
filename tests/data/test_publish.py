import multiprocessing
import os
import time
from pathlib import Path

import pytest

from prism_transformer.data.publish import claim, publish
from prism_transformer.errors import InputError


def write(partial: Path, text: str = "new") -> None:
    (partial / "tokenizer").mkdir()
    (partial / "tokenizer" / "vocabulary").write_text(text)
    (partial / "shard.bin").write_text(text)
    (partial / "mark").write_text(text)


def visible(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")


WHOLE = ["mark", "shard.bin", "tokenizer", "tokenizer/vocabulary"]


def test_finished_files_move_into_the_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "out", mark="mark") as partial:
        write(partial)
        publish(partial, mark="mark")
    assert visible(tmp_path / "out") == WHOLE


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), claim(tmp_path / "out", mark="mark") as partial:
        write(partial)
        raise RuntimeError
    assert not (tmp_path / "out").exists()


def test_mark_moves_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: (moved.append(self.name), replace(self, target))[1])
    with claim(tmp_path / "out", mark="mark") as partial:
        write(partial)
        publish(partial, mark="mark")
    assert moved[-1] == "mark"


@pytest.mark.parametrize("survivors", [1, 2])
def test_death_between_the_moves_can_be_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    replace, moves = Path.replace, iter(range(9))

    def dying(self: Path, target: Path) -> Path:
        if next(moves) == survivors:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(KeyboardInterrupt), claim(tmp_path / "out", mark="mark") as partial:
        write(partial, "old")
        publish(partial, mark="mark")
    monkeypatch.undo()
    assert not (tmp_path / "out" / "mark").exists()
    with claim(tmp_path / "out", mark="mark") as partial:
        write(partial)
        publish(partial, mark="mark")
    assert visible(tmp_path / "out") == WHOLE
    assert (tmp_path / "out" / "tokenizer" / "vocabulary").read_text() == "new"


def test_killed_process_leaves_a_place_that_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "out" / ".partial").mkdir(parents=True)
    (tmp_path / "out" / ".partial" / "half").write_text("half")
    with claim(tmp_path / "out", mark="mark") as partial:
        assert list(partial.iterdir()) == []


def test_strange_files_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="choose another folder"), claim(tmp_path, mark="mark"):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="a file, not a folder"), claim(tmp_path / "out", mark="mark"):
        pass


def hold(folder: Path, seconds: float) -> None:
    with claim(folder, mark="mark") as partial:
        time.sleep(seconds)
        write(partial)
        publish(partial, mark="mark")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the first process is a forked one")
def test_second_process_waits_for_the_first(tmp_path: Path) -> None:
    first = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path / "out", 0.5))
    first.start()
    while not (tmp_path / "out" / ".partial").exists():
        time.sleep(0.01)
    with claim(tmp_path / "out", mark="mark"):
        assert (tmp_path / "out" / "mark").exists()
    first.join()
    assert first.exitcode == 0
