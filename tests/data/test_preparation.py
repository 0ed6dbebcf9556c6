import errno
import gzip
import json
import os
import shutil
from dataclasses import replace
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from prism_transformer.data import SPLITS, Corpus, DataSettings, prepare
from prism_transformer.data.encode import encode
from prism_transformer.errors import InputError, RunError


def quiet(line: str) -> None:
    """For tests that do not look at what is said."""


def write_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def documents_of(corpus: Corpus) -> dict[str, list[str]]:
    """Split -> the texts of its documents, decoded."""
    found: dict[str, list[str]] = {}
    for name in SPLITS:
        stream = corpus.split(name)
        edges = [*stream.document_starts.tolist(), len(stream)]
        ids = stream.read(0, len(stream))
        found[name] = [corpus.tokenizer.decode(ids[a + 1 : b]) for a, b in pairwise(edges)]
        assert all(ids[edge] == corpus.tokenizer.end_of_text for edge in edges[:-1])
    return found


TEXTS = [f"document {i} of {'many ' * (i % 7)}words" for i in range(300)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "text.jsonl", TEXTS)


@pytest.fixture
def settings(lines: Path) -> DataSettings:
    return DataSettings(paths=(str(lines),), tokenizer="bytes")


@pytest.mark.parametrize(
    "changes", [{"tokenizer": "bytes"}, {"tokenizer": "gpt2"}, {"tokenizer": "bpe", "vocab_size": 300}]
)
def test_every_document_is_in_one_split_whole(settings: DataSettings, tmp_path: Path, changes: dict[str, Any]) -> None:
    found = documents_of(prepare(replace(settings, **changes), tmp_path / "out", say=quiet))
    assert sorted(text for texts in found.values() for text in texts) == sorted(TEXTS)
    assert all(found.values())


def test_text_with_a_literal_end_of_text_comes_back(tmp_path: Path) -> None:
    texts = [f"<|endoftext|> {i} <|endoftext|>" for i in range(100)]
    for tokenizer in ("bytes", "gpt2", "bpe"):
        settings = DataSettings(
            paths=(str(write_lines(tmp_path / "a.jsonl", texts)),), tokenizer=tokenizer, vocab_size=300
        )
        found = documents_of(prepare(settings, tmp_path / tokenizer, say=quiet))
        assert sorted(text for part in found.values() for text in part) == sorted(texts)


def test_kept_and_dropped_make_the_total(settings: DataSettings, tmp_path: Path) -> None:
    """Bytes: one token a byte and one before each document."""
    corpus = prepare(settings, tmp_path / "out", say=quiet)
    assert corpus.manifest is not None
    counts = corpus.manifest.counts
    expected = sum(len(text.encode()) + 1 for text in TEXTS)
    assert counts.tokens_kept + counts.tokens_dropped == counts.tokens_total == expected
    assert sum(len(corpus.split(name)) for name in SPLITS) == counts.tokens_kept
    assert sum(split.text_bytes for split in corpus.manifest.splits.values()) == sum(
        len(text.encode()) for text in TEXTS
    )


def test_empty_and_blank_documents_are_skipped_and_counted(tmp_path: Path) -> None:
    texts = ["", "one", "   \n\t ", "x", *TEXTS, "", "\u2003\u00a0"]
    said: list[str] = []
    settings = DataSettings(paths=(str(write_lines(tmp_path / "a.jsonl", texts)),), tokenizer="bytes")
    corpus = prepare(settings, tmp_path / "out", say=said.append)
    assert corpus.manifest is not None
    assert (corpus.manifest.counts.documents, corpus.manifest.counts.documents_empty) == (len(TEXTS) + 2, 4)
    assert "skipped: 4 empty documents" in said
    assert sorted(chain.from_iterable(documents_of(corpus).values())) == sorted(["one", "x", *TEXTS])


def test_exact_duplicates_fall_on_one_side(tmp_path: Path) -> None:
    texts = [text for text in TEXTS for _ in range(3)]
    settings = DataSettings(paths=(str(write_lines(tmp_path / "a.jsonl", texts)),), tokenizer="bytes")
    found = documents_of(prepare(settings, tmp_path / "out", say=quiet))
    for text in TEXTS:
        assert sorted(part.count(text) for part in found.values()) == [0, 0, 3]


def test_single_text_gives_its_last_parts(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(20000))
    (tmp_path / "a.txt").write_text(text)
    settings = DataSettings(paths=(str(tmp_path / "a.txt"),), tokenizer="bytes")
    found = documents_of(prepare(settings, tmp_path / "out", say=quiet))
    assert [len(part) for part in found.values()] == [1, 1, 1]
    assert "".join(found[name][0] for name in SPLITS) == text
    assert len(found["validation"][0]) == pytest.approx(0.05 * len(text), rel=0.01)
    assert len(found["test"][0]) == pytest.approx(0.05 * len(text), rel=0.01)


def test_what_is_held_out_has_a_largest_size_and_the_rest_is_trained_on(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(20000))
    (tmp_path / "a.txt").write_text(text)
    settings = DataSettings(paths=(str(tmp_path / "a.txt"),), tokenizer="bytes", held_out_bytes=1000)
    found = documents_of(prepare(settings, tmp_path / "out", say=quiet))
    assert [len(found[name][0]) for name in SPLITS] == pytest.approx([len(text) - 2000, 1000, 1000], abs=5)


def test_folder_of_three_files_leaves_no_split_empty(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for name in "abc":
        (tmp_path / "notes" / f"{name}.txt").write_text(f"{name} " * 3000)
    settings = DataSettings(paths=(str(tmp_path / "notes"),), tokenizer="bytes")
    corpus = prepare(settings, tmp_path / "out", say=quiet)
    assert all(len(corpus.split(name)) > 800 for name in SPLITS)


def test_too_little_text_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab")
    with pytest.raises(InputError, match="too little text to split"):
        prepare(DataSettings(paths=(str(tmp_path / "a.txt"),), tokenizer="bytes"), tmp_path / "out", say=quiet)
    assert not (tmp_path / "out").exists()


def test_only_blank_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(InputError, match=r"a\.txt: no text in it, only 1 empty or blank"):
        prepare(DataSettings(paths=(str(tmp_path / "a.txt"),)), tmp_path / "out", say=quiet)


def test_bytes_that_are_no_utf8_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 " * 500)
    said: list[str] = []
    prepare(DataSettings(paths=(str(tmp_path / "a.txt"),), tokenizer="bytes"), tmp_path / "out", say=said.append)
    assert "warning: 500 bytes are no UTF-8; each became U+FFFD" in said


def word_tokenizer(folder: Path, unknown: str | None) -> Path:
    """Knows the words "one" and "two" only."""
    folder.mkdir()
    words = {"<unk>": 0, "</s>": 1, "one": 2, "two": 3}
    model = models.WordLevel(words, unk_token="<unk>") if unknown else models.BPE(words, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return folder


def test_unknown_share_is_counted_and_warned_of(tmp_path: Path) -> None:
    """Each of the 256 documents is 8 known words, 1 unknown one, and end-of-text: a tenth of the tokens."""
    texts = [" ".join([*words, "six"]) for words in product(["one", "two"], repeat=8)]
    lines = write_lines(tmp_path / "a.jsonl", texts)
    said: list[str] = []
    tokenizer = word_tokenizer(tmp_path / "words", "<unk>")
    corpus = prepare(DataSettings(paths=(str(lines),), tokenizer=str(tokenizer)), tmp_path / "out", say=said.append)
    assert corpus.manifest is not None
    assert corpus.manifest.counts.tokens_unknown == 256
    assert corpus.manifest.counts.tokens_total == 2560
    assert any("warning: 10.0% of the tokens are unknown to the tokenizer words" in line for line in said)


def test_tokenizer_that_loses_text_is_warned_of(tmp_path: Path) -> None:
    """Without an unknown id, a character outside the vocabulary is dropped in silence by the library."""
    lines = write_lines(tmp_path / "a.jsonl", TEXTS)
    said: list[str] = []
    tokenizer = word_tokenizer(tmp_path / "words", None)
    prepare(DataSettings(paths=(str(lines),), tokenizer=str(tokenizer)), tmp_path / "out", say=said.append)
    assert any("loses" in line and line.startswith("warning:") for line in said)


def test_fewer_ids_than_asked_for_are_warned_of_where_they_were_trained_here(lines: Path, tmp_path: Path) -> None:
    """A brought tokenizer has the ids that it has, also where its folder is named bpe."""
    said: list[str] = []
    settings = DataSettings(paths=(str(lines),), vocab_size=4096)
    prepare(settings, tmp_path / "trained", say=said.append)
    assert any("warning: so little text gives" in line for line in said)
    said.clear()
    tokenizer = word_tokenizer(tmp_path / "bpe", "<unk>")
    prepare(replace(settings, tokenizer=str(tokenizer)), tmp_path / "brought", say=said.append)
    assert not any("so little text" in line for line in said)


def test_most_frequent_ids_are_those_of_the_training_split(settings: DataSettings, tmp_path: Path) -> None:
    corpus = prepare(settings, tmp_path / "out", say=quiet)
    assert corpus.manifest is not None
    ids = corpus.split("train").read(0, len(corpus.split("train")))
    top = corpus.manifest.most_frequent[0]
    values, counts = np.unique(ids, return_counts=True)
    assert top["id"] == values[counts.argmax()]
    assert top["share"] == pytest.approx(counts.max() / len(ids))


def test_bpe_learns_from_the_training_split_alone(settings: DataSettings, tmp_path: Path) -> None:
    """Nothing but the held-out texts changes, and the tokenizer does not."""
    changes = {"tokenizer": "bpe", "vocab_size": 320}
    first = prepare(replace(settings, **changes), tmp_path / "one", say=quiet)
    found = documents_of(first)
    held_out = {*found["validation"], *found["test"]}
    train_only = write_lines(tmp_path / "b.jsonl", [text for text in TEXTS if text not in held_out])
    alone = DataSettings(paths=(str(train_only),), validation_share=0.0, test_share=0.0, **changes)
    assert prepare(alone, tmp_path / "two", say=quiet).tokenizer.fingerprint == first.tokenizer.fingerprint


def test_preparing_again_reuses_what_is_there(settings: DataSettings, tmp_path: Path) -> None:
    first = prepare(settings, tmp_path / "out", say=quiet)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    said: list[str] = []
    again = prepare(settings, tmp_path / "out", say=said.append)
    assert again.fingerprint == first.fingerprint
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    assert len(said) == 1


def test_same_text_gives_the_same_corpus_anywhere(settings: DataSettings, tmp_path: Path) -> None:
    changes = {"tokenizer": "bpe", "vocab_size": 300}
    fingerprints = {
        prepare(replace(settings, **changes), tmp_path / name, say=quiet).fingerprint for name in ("one", "two")
    }
    assert len(fingerprints) == 1


def test_touched_source_is_the_same_source(settings: DataSettings, lines: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()
    made = prepare(settings, out, say=quiet)
    written = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}
    os.utime(lines, ns=(1, 1))
    assert prepare(settings, out, say=said.append).fingerprint == made.fingerprint
    assert said == [f"data: {out} holds this text, prepared with these settings"]
    assert {path: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"} == written


def test_gone_sources_do_not_matter_to_what_is_prepared(settings: DataSettings, lines: Path, tmp_path: Path) -> None:
    prepare(settings, tmp_path / "out", say=quiet)
    lines.unlink()
    said: list[str] = []
    prepare(settings, tmp_path / "out", say=said.append)
    assert "not all there" in said[0]


def test_gone_tokenizer_does_not_matter_to_what_is_prepared(lines: Path, tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path / "words", "<unk>")
    settings = DataSettings(paths=(str(lines),), tokenizer=str(tokenizer))
    made = prepare(settings, tmp_path / "out", say=quiet)
    shutil.rmtree(tokenizer)
    assert prepare(settings, tmp_path / "out", say=quiet).fingerprint == made.fingerprint
    with pytest.raises(InputError, match="words': no such folder"):
        prepare(replace(settings, test_share=0.1), tmp_path / "out", say=quiet)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer": "gpt2"}, "tokenizer was 'bytes', is now 'gpt2'"),
        ({"validation_share": 0.1, "test_share": 0.2}, "validation_share was 0.05, is now 0.1\n  test_share"),
    ],
)
def test_other_settings_are_refused_by_name(
    settings: DataSettings, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    before = prepare(settings, tmp_path / "out", say=quiet).fingerprint
    with pytest.raises(InputError, match=named):
        prepare(replace(settings, **changes), tmp_path / "out", say=quiet)
    assert Corpus.open(tmp_path / "out").fingerprint == before


def test_changed_sources_are_refused_by_name(settings: DataSettings, lines: Path, tmp_path: Path) -> None:
    prepare(settings, tmp_path / "out", say=quiet)
    more = write_lines(tmp_path / "more.jsonl", ["more"])
    with pytest.raises(InputError, match=r"more\.jsonl was not read then"):
        prepare(replace(settings, paths=(str(lines), str(more))), tmp_path / "out", say=quiet)
    write_lines(lines, [text.upper() for text in TEXTS])
    with pytest.raises(InputError, match=r"text\.jsonl has changed since"):
        prepare(settings, tmp_path / "out", say=quiet)
    with pytest.raises(InputError, match=r"text\.jsonl was read then, is not given now"):
        prepare(replace(settings, paths=(str(more),)), tmp_path / "out", say=quiet)


def test_order_of_the_sources_is_part_of_the_corpus(tmp_path: Path) -> None:
    a, b = (str(write_lines(tmp_path / f"{name}.jsonl", TEXTS[:100])) for name in "ab")
    prepare(DataSettings(paths=(a, b), tokenizer="bytes"), tmp_path / "out", say=quiet)
    with pytest.raises(InputError, match="another order"):
        prepare(DataSettings(paths=(b, a), tokenizer="bytes"), tmp_path / "out", say=quiet)


def test_tokenizer_folder_that_changed_is_refused(lines: Path, tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path / "words", "<unk>")
    settings = DataSettings(paths=(str(lines),), tokenizer=str(tokenizer))
    prepare(settings, tmp_path / "out", say=quiet)
    (tokenizer / "tokenizer_config.json").write_text('{"eos_token": "two"}')
    with pytest.raises(InputError, match=r"the tokenizer .* has changed since"):
        prepare(settings, tmp_path / "out", say=quiet)


def test_prepared_folder_is_opened_as_it_is(settings: DataSettings, tmp_path: Path) -> None:
    made = prepare(settings, tmp_path / "made", say=quiet)
    corpus = prepare(DataSettings(paths=(str(tmp_path / "made"),)), tmp_path / "unused", say=quiet)
    assert corpus.fingerprint == made.fingerprint
    assert not (tmp_path / "unused").exists()
    with pytest.raises(InputError, match="prepared with the tokenizer bytes, not with gpt2"):
        prepare(DataSettings(paths=(str(tmp_path / "made"),), tokenizer="gpt2"), tmp_path / "unused", say=quiet)
    with pytest.raises(InputError, match="give it alone"):
        prepare(DataSettings(paths=(str(tmp_path / "made"), *settings.paths)), tmp_path / "unused", say=quiet)


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({"vocab_size": 256}, ["vocab_size=256 is outside 257"]),
        ({"held_out_bytes": 0}, ["held_out_bytes=0 must be at least 1"]),
        ({"validation_share": -0.1, "test_share": 1.0}, ["validation_share=-0.1", "test_share=1.0"]),
        ({"validation_share": 0.5, "test_share": 0.5}, ["leaves no text for training"]),
    ],
)
def test_settings_that_cannot_be_are_all_named(tmp_path: Path, values: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(InputError) as error:
        prepare(DataSettings(**values), tmp_path / "out", say=quiet)
    assert len(error.value.problems) == len(problems)
    for got, part in zip(error.value.problems, problems, strict=True):
        assert part in got


def test_faults_of_sources_and_tokenizer_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        prepare(DataSettings(paths=(str(tmp_path / "gone"),), tokenizer="gpt-2"), tmp_path / "out", say=quiet)
    assert len(error.value.problems) == 2
    assert not (tmp_path / "out").exists()


def test_folder_with_other_files_is_left_alone(settings: DataSettings, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files, but no prepared corpus"):
        prepare(settings, tmp_path / "out", say=quiet)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_or_quota_ends_with_a_sentence_and_leaves_nothing(
    settings: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("prism_transformer.data.shards.os.fsync", full)
    with pytest.raises(RunError, match="out: no space left"):
        prepare(settings, tmp_path / "out", say=quiet)
    assert not (tmp_path / "out").exists()


def test_source_that_changes_while_it_is_read_is_refused(
    settings: DataSettings, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        write_lines(lines, [*TEXTS[:-1], "shorter"])
        return encode(*args, **kwargs)

    monkeypatch.setattr("prism_transformer.data.preparation.encode", meanwhile)
    with pytest.raises(InputError, match="changed while it was being read"):
        prepare(settings, tmp_path / "out", say=quiet)


def test_compressed_and_plain_sources_give_the_same_tokens(settings: DataSettings, lines: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    plain = prepare(settings, tmp_path / "plain", say=quiet)
    other = prepare(replace(settings, paths=(str(packed),)), tmp_path / "other", say=quiet)
    assert other.fingerprint == plain.fingerprint
