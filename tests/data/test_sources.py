import io
import os
from pathlib import Path

import pytest

from prism_transformer.data.reading import Tally
from prism_transformer.data.sources import Files, find_files
from prism_transformer.errors import InputError


def find(*paths: Path | str, spool: Path = Path("/nowhere")) -> Files:
    return find_files([str(path) for path in paths], text_field="text", spool=spool)


def texts(files: Files) -> list[str]:
    return ["".join(document.blocks) for document in files.documents(Tally())]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Two texts, one of them deeper; and what is passed over: 2 hidden, 1 binary."""
    root = tmp_path / "notes"
    (root / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "b.txt").write_text("b")
    (root / "deep" / "a.md").write_text("a")
    (root / "image.png").write_bytes(b"\x89PNG\0\0")
    (root / ".hidden.txt").write_text("hidden")
    (root / ".git" / "config").write_text("hidden")
    return root


def test_folder_is_read_sorted_without_hidden_and_binary_files(notes: Path) -> None:
    files = find(notes)
    assert texts(files) == ["b", "a"]
    assert (files.files, files.hidden, files.binary) == (2, 2, 1)


def test_order_given_is_kept_and_no_file_is_read_twice(notes: Path) -> None:
    assert texts(find(notes / "deep" / "a.md", notes, notes / "b.txt")) == ["a", "b"]


def test_globs_take_files_and_folders(notes: Path) -> None:
    assert texts(find(notes / "*.txt")) == ["b"]
    assert texts(find(notes / "**" / "*.md")) == ["a"]
    assert texts(find(notes / "d*")) == ["a"]


def test_name_with_brackets_is_a_file_before_it_is_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    assert texts(find(tmp_path / "a[1].txt")) == ["x"]


def test_home_is_expanded(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(notes.parent))
    monkeypatch.setenv("USERPROFILE", str(notes.parent))
    assert texts(find("~/notes")) == ["b", "a"]


def test_every_problem_is_reported_at_once(notes: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError) as error:
        find(
            tmp_path / "gone",
            tmp_path / "*.nothing",
            tmp_path / "empty.txt",
            tmp_path / "none",
            notes / "image.png",
            notes,
        )
    problems = error.value.problems
    expected = ["no such file or folder", "no file matches", "the file is empty", "no text in it", "a binary file"]
    assert len(problems) == len(expected)
    for problem, text in zip(problems, expected, strict=True):
        assert text in problem


def test_studies_runs_and_corpora_among_the_texts_are_left_out(notes: Path) -> None:
    for folder, mark, content in (
        ("study", "study.yaml", ""),
        ("run", "recipe.yaml", ""),
        ("search", "search.yaml", ""),
        ("corpus", "manifest.json", '{"format": "prism-transformer corpus 1"}'),
    ):
        (notes / folder).mkdir()
        (notes / folder / mark).write_text(content)
        (notes / folder / "metrics.jsonl").write_text("{}")
    assert texts(find(notes)) == ["b", "a"]
    assert texts(find(notes / "*")) == ["b", "a"]


def test_empty_path_is_not_this_folder() -> None:
    with pytest.raises(InputError, match="empty text"):
        find("")


def test_every_faulty_file_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "x"}\n' + ("" if name == "b" else "{\n"))
    with pytest.raises(InputError) as error:
        texts(find(tmp_path))
    assert [problem.partition(":")[0][-15:] for problem in error.value.problems] == [
        "a.jsonl, line 2",
        "c.jsonl, line 2",
    ]


@pytest.mark.parametrize(
    ("raw", "documents"),
    [(b"just text\n", ["just text\n"]), (b'{"text": "one"}\n{"text": "two"}\n', ["one", "two"])],
)
def test_standard_input_is_text_or_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes, documents: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    files = find("-", spool=tmp_path)
    assert texts(files) == documents == texts(files)
    assert files.origin == "standard input"
    assert files.identity({})[0].name == "-"


@pytest.mark.parametrize("raw", [b"", b"\x7fELF\0"])
def test_standard_input_without_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    with pytest.raises(InputError, match="standard input is empty or no text"):
        find("-", spool=tmp_path)


def test_identity_sees_a_change_and_not_a_touch(notes: Path) -> None:
    files = find(notes)
    before = files.identity({})
    os.utime(notes / "b.txt", ns=(1, 1))
    touched = files.identity({info.name: info for info in before})
    assert [(info.size, info.sha256) for info in touched] == [(info.size, info.sha256) for info in before]
    (notes / "b.txt").write_text("c")
    changed = files.identity({info.name: info for info in before})
    assert changed[0].sha256 != before[0].sha256


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_pipe_is_refused_with_the_remedy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="standard input"):
        find(tmp_path / "pipe")
