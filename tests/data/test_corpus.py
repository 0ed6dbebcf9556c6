import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from prism_transformer.data import Corpus, DataSettings, is_prepared, prepare
from prism_transformer.data.corpus import TokenStream
from prism_transformer.data.tokenizer import ByteTokenizer
from prism_transformer.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 short documents as bytes."""
    folder = tmp_path_factory.mktemp("made")
    lines = "".join(json.dumps({"text": f"document {i} – some words"}) + "\n" for i in range(400))
    (folder / "text.jsonl").write_text(lines)
    settings = DataSettings(paths=(str(folder / "text.jsonl"),), tokenizer="bytes")
    prepare(settings, folder / "corpus", say=lambda line: None)
    return folder / "corpus"


@pytest.fixture
def corpus(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "corpus"))


def nanogpt_folder(folder: Path) -> Path:
    """As nanoGPT's prepare.py writes it: GPT-2 ids, uint16, end-of-text after each document."""
    folder.mkdir()
    np.array([15496, 995, 50256, 15496, 50256], dtype=np.uint16).tofile(folder / "train.bin")
    np.array([995, 50256], dtype=np.uint16).tofile(folder / "val.bin")
    return folder


def test_stream_is_read_across_its_parts() -> None:
    parts = [np.arange(0, 5, dtype=np.uint16), np.arange(5, 5, dtype=np.uint16), np.arange(5, 12, dtype=np.uint16)]
    stream = TokenStream(where="w", parts=parts, names=["a", "b", "c"], tokenizer=ByteTokenizer())
    assert len(stream) == 12
    for start in range(13):
        for count in range(13 - start):
            assert stream.read(start, count).tolist() == list(range(start, start + count))
    assert stream.read(0, 3).dtype == np.int64
    with pytest.raises(IndexError):
        stream.read(5, 8)


def test_corrupt_id_is_reported_with_shard_and_position(corpus: Path) -> None:
    """Id 60000 does not exist in a vocabulary of 257."""
    shard = corpus / "train_000000.bin"
    raw = bytearray(shard.read_bytes())
    raw[1024 + 2 * 1234 : 1024 + 2 * 1235] = struct.pack("<H", 60000)
    shard.write_bytes(raw)
    stream = Corpus.open(corpus).split("train")
    stream.read(0, 1234)
    with pytest.raises(InputError, match=r"train_000000\.bin: token 1,234 has id 60000, .* of 257 ids"):
        stream.read(1200, 100)


def test_document_starts_are_the_end_of_text_ids(corpus: Path) -> None:
    stream = Corpus.open(corpus).split("train")
    ids = stream.read(0, len(stream))
    assert stream.document_starts.tolist() == np.flatnonzero(ids == 256).tolist()
    assert stream.document_starts[0] == 0


def test_text_bytes_are_those_of_the_decoded_documents(corpus: Path) -> None:
    opened = Corpus.open(corpus)
    stream = opened.split("validation")
    text = opened.tokenizer.decode(stream.read(0, len(stream))).replace("<|endoftext|>", "")
    assert stream.text_bytes == len(text.encode()) > 0


@pytest.mark.parametrize("name", ["train_000000.bin", "validation_000000.bin"])
def test_truncated_shard_is_refused_by_name(corpus: Path, name: str) -> None:
    path = corpus / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=rf"{name}.*truncated"):
        Corpus.open(corpus)


def test_all_damaged_shards_are_named_at_once(corpus: Path) -> None:
    (corpus / "train_000000.bin").unlink()
    shutil.copy(corpus / "validation_000000.bin", corpus / "test_000000.bin")
    with pytest.raises(InputError) as error:
        Corpus.open(corpus)
    assert len(error.value.problems) == 2


def test_shard_of_another_tokenizer_is_refused(corpus: Path) -> None:
    """Same count, same size; only the fingerprint in the header differs."""
    path = corpus / "train_000000.bin"
    raw = bytearray(path.read_bytes())
    raw[48:80] = bytes(32 * [7])
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"train_000000\.bin: not the shard of the manifest"):
        Corpus.open(corpus)


def test_another_tokenizer_in_the_folder_is_refused(corpus: Path) -> None:
    from prism_transformer.data.tokenizer import Gpt2Tokenizer

    shutil.rmtree(corpus / "tokenizer")
    Gpt2Tokenizer().save(corpus / "tokenizer")
    with pytest.raises(InputError, match="not the tokenizer of the manifest"):
        Corpus.open(corpus)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "prism-transformer corpus 1"}', '{"format": "other"}'])
def test_damaged_manifest_is_refused_by_name(corpus: Path, content: str) -> None:
    (corpus / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json"):
        Corpus.open(corpus)


def test_folder_without_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no corpus"):
        Corpus.open(tmp_path)


def test_moved_corpus_has_the_same_fingerprint(corpus: Path, tmp_path: Path) -> None:
    before = Corpus.open(corpus).fingerprint
    assert Corpus.open(Path(shutil.move(corpus, tmp_path / "elsewhere"))).fingerprint == before


def test_fingerprint_sees_other_content_of_the_same_size(made: Path, tmp_path: Path) -> None:
    """One letter of one document differs: same names, same sizes, same counts."""
    text = (made.parent / "text.jsonl").read_text().replace("document 7 ", "dokument 7 ")
    (tmp_path / "text.jsonl").write_text(text)
    settings = DataSettings(paths=(str(tmp_path / "text.jsonl"),), tokenizer="bytes")
    other = prepare(settings, tmp_path / "other", say=lambda line: None)
    assert other.fingerprint != Corpus.open(made).fingerprint


def test_nanogpt_folder_opens_with_its_tokenizer_named(tmp_path: Path) -> None:
    corpus = Corpus.open(nanogpt_folder(tmp_path / "owt"), tokenizer="gpt2")
    train = corpus.split("train")
    assert train.read(0, 5).tolist() == [15496, 995, 50256, 15496, 50256]
    assert train.document_starts.tolist() == [2, 4]
    assert train.text_bytes == len(b"Hello world") + len(b"Hello")
    assert (corpus.manifest, corpus.vocab_size) == (None, 50257)
    with pytest.raises(InputError, match="no test split"):
        corpus.split("test")


def test_a_split_is_one_stream_whose_documents_are_found_once(tmp_path: Path) -> None:
    corpus = Corpus.open(nanogpt_folder(tmp_path / "owt"), tokenizer="gpt2")
    assert corpus.split("train").document_starts is corpus.split("train").document_starts
    assert len(corpus.split("train")) == 5 and len(corpus.split("validation")) == 2


def test_nanogpt_folder_does_not_guess_its_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not say which tokenizer"):
        Corpus.open(nanogpt_folder(tmp_path / "owt"))


def test_wrong_tokenizer_over_foreign_ids_is_refused_when_read(tmp_path: Path) -> None:
    stream = Corpus.open(nanogpt_folder(tmp_path / "owt"), tokenizer="bytes").split("train")
    with pytest.raises(InputError, match=r"train\.bin: token 0 has id 15496"):
        stream.read(0, 5)


def test_shards_of_llm_c_open(tmp_path: Path) -> None:
    for name in ("fineweb_train_000001.bin", "fineweb_train_000002.bin", "fineweb_val_000000.bin"):
        ids = [50256, 15496]
        raw = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack("<2H", *ids)
        (tmp_path / name).write_bytes(raw)
    corpus = Corpus.open(tmp_path, tokenizer="gpt2")
    assert (len(corpus.split("train")), len(corpus.split("validation"))) == (4, 2)


def test_prepared_folders_are_known_by_sight(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name": "a web page"}')
    found = [
        is_prepared(path) for path in (corpus, nanogpt_folder(tmp_path / "owt"), tmp_path / "web", tmp_path / "no")
    ]
    assert found == [True, True, False, False]
