import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from prism_transformer.cli.data import main
from prism_transformer.data import Corpus
from prism_transformer.errors import InputError


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    for i in range(60):
        (tmp_path / "notes" / f"{i}.txt").write_text(f"note {i} says something else\n" * (i % 5 + 1))
    return tmp_path / "notes"


def test_prepare_writes_a_corpus_and_says_what_it_did(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tokens"
    assert main(["prepare", str(notes), "--vocab-size", "300", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    corpus = Corpus.open(out)
    assert corpus.vocab_size == 300
    assert f"{len(corpus.split('train')):,} train" in said
    assert "60 documents" in said and "0 dropped" in said and "0.00% unknown" in said
    assert str(out) in said
    assert max(map(len, said.replace(str(tmp_path), "").splitlines())) <= 80
    assert "most frequent: " in said


def test_again_with_the_same_arguments_is_done_already(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", str(notes), "--tokenizer", "bytes", "--out", str(tmp_path / "tokens")]
    assert (main(arguments), main(arguments)) == (0, 0)
    assert "holds this text, prepared with these settings" in capsys.readouterr().out


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"some words " * 500)))
    assert main(["prepare", "-", "--tokenizer", "bytes", "--out", str(tmp_path / "tokens")]) == 0
    assert len(Corpus.open(tmp_path / "tokens").split("train")) == pytest.approx(0.9 * 5500, abs=20)


def test_faults_of_the_user_are_for_the_caller_to_print(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        main(["prepare", str(tmp_path / "gone"), "--out", str(tmp_path / "tokens")])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["prepare", "--out", "x", "--vocabsize", "9"], "--vocab-size"),
        (["prepare", "notes"], "--out"),
        (["prepar"], "prepare"),
        (["prepare", "--out", "x", "--vocab-size", "many"], "--vocab-size"),
        ([], "prepare"),
    ],
)
def test_misspelt_arguments_exit_with_2_and_name_the_right_ones(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert expected in capsys.readouterr().err


def test_json_is_all_that_stdout_gets(notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tokens"
    assert main(["prepare", str(notes), "--tokenizer", "bytes", "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    corpus = Corpus.open(out)
    assert found["tokens"]["train"] == len(corpus.split("train")) == found["manifest"]["splits"]["train"]["tokens"]
    assert (found["folder"], found["fingerprint"], found["vocab_size"]) == (str(out), corpus.fingerprint, 257)
    assert "60 documents" in said.err


def test_fineweb_is_a_word_and_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the two verbs reads from a folder in the layout of its data set."""
    rows = [f"document {i} of the web" for i in range(400)]
    (tmp_path / "hub" / "sample" / "10BT").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "hub/sample/10BT/000_00000.parquet")
    arguments = ["--source", str(tmp_path / "hub"), "--tokens", "1K", "--validation-share", "0.1", "--json"]
    assert main(["prepare", "fineweb", *arguments, "--subset", "sample-10BT", "--out", str(tmp_path / "a")]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"]["train"] >= 1000
    header = np.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, 5000
    for name in ("fineweb_val_000000.bin", "fineweb_train_000001.bin"):
        (tmp_path / name).write_bytes(header.tobytes() + bytes(10000))
    arguments = ["--source", str(tmp_path), "--tokens", "5K", "--json", "--out", str(tmp_path / "b")]
    assert main(["prepare", "fineweb-gpt2", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == {"train": 5000, "validation": 5000, "test": 0}


def test_fineweb_beside_a_path_is_refused(notes: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fineweb is no path"):
        main(["prepare", str(notes), "fineweb", "--out", str(tmp_path / "tokens")])
