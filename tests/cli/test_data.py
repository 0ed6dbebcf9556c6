import io
from pathlib import Path

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
