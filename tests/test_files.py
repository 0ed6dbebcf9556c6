"""Whole files or none, and damage that is noticed."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from prism_transformer import files
from prism_transformer.errors import InputError
from prism_transformer.files import (
    checksums,
    free_bytes,
    path_from,
    read_json,
    refuse_foreign,
    settle,
    size_text,
    verify,
    write_json,
    write_text,
)

SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_written_and_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("erste Zeile\n", "§ → zweite\n"):
        write_text(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="others read by rights of another kind")
def test_a_new_folder_s_files_are_as_readable_as_the_folder(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("weights", "below/text"):
        (tmp_path / name).touch(mode=0o600)
    tmp_path.chmod(0o750)
    settle(tmp_path)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("weights", "below/text")] == [0o640, 0o640]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_text_and_no_rest(tmp_path, monkeypatch, call):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.txt"
    write_text(path, "old")
    monkeypatch.setattr(files.os if call == "fsync" else files.Path, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_the_text_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    """fsync of the file, then the rename, then fsync of the folder."""
    events = []
    fsync, replace = os.fsync, files.Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda fd: (events.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(files.Path, "replace", lambda a, b: (events.append("rename"), replace(a, b))[1])
    write_text(tmp_path / "a.txt", "text")
    assert events == ["fsync", "rename", "fsync"]


def test_json_comes_back(tmp_path):
    value = {"name": "Prism – λ", "loss": 0.1 + 0.2, "none": None, "list": [1, {"a": True}]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


def test_json_of_a_number_that_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b'{"a": 1', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "must hold an object, not list"),
    ],
)
def test_a_file_without_a_json_object_is_refused(tmp_path, content, message):
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_json(path)


def test_checksums_are_sha256_of_each_file(tmp_path):
    (tmp_path / "b").write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"abc")
    assert checksums(tmp_path.iterdir()) == {"a": SHA256_OF_ABC, "b": SHA256_OF_ABC}


def test_every_changed_and_missing_file_is_named(tmp_path):
    for name in ("same", "flipped", "gone", "cut"):
        (tmp_path / name).write_bytes(b"abc")
    sums = json.loads(json.dumps(checksums(tmp_path.iterdir())))
    verify(tmp_path, sums)
    (tmp_path / "flipped").write_bytes(b"abb")
    (tmp_path / "cut").write_bytes(b"ab")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_bytes(b"of no concern")
    with pytest.raises(InputError) as caught:
        verify(tmp_path, sums)
    found = sorted(problem.removeprefix(f"{tmp_path}{os.sep}").split(";")[0] for problem in caught.value.problems)
    assert found == [
        "cut was changed or damaged since it was saved (its sha256 differs)",
        "flipped was changed or damaged since it was saved (its sha256 differs)",
        "gone is missing",
    ]


@pytest.mark.parametrize("relative", [True, False])
def test_free_room_is_that_of_the_nearest_folder_that_is_there(tmp_path, monkeypatch, relative):
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or SimpleNamespace(free=7))
    monkeypatch.chdir(tmp_path)
    assert free_bytes(Path("a/b") if relative else tmp_path / "a" / "b") == 7
    assert asked == [tmp_path]


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(999, "999 bytes"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (1.2345e13, "12,345.0 GB")]
)
def test_sizes_in_words(n_bytes, text):
    assert size_text(n_bytes) == text


def test_a_folder_of_others_is_not_touched(tmp_path):
    refuse_foreign(tmp_path / "new", mark="study.yaml")
    refuse_foreign(tmp_path, mark="study.yaml")
    (tmp_path / "data").mkdir()
    refuse_foreign(tmp_path, mark="study.yaml", beside=("data",))
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"holds something else \(thesis\.tex\)"):
        refuse_foreign(tmp_path, mark="study.yaml", beside=("data",))
    with pytest.raises(InputError, match=r"thesis\.tex is a file"):
        refuse_foreign(tmp_path / "thesis.tex", mark="study.yaml")
    (tmp_path / "study.yaml").write_text("")
    refuse_foreign(tmp_path, mark="study.yaml")


def test_a_path_within_a_folder_is_named_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_from(Path("study"), tmp_path / "study" / "data") == "data"
    assert path_from(Path("study"), Path("corpus")) == str(tmp_path.resolve() / "corpus")
