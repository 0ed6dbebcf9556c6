"""Any text as a stream: documents preceded by end-of-text, packed, bytes counted."""

import json

import pytest

from prism_transformer.data import load_tokenizer
from prism_transformer.errors import InputError
from prism_transformer.evaluation.text import read_text

BYTES = load_tokenizer("bytes")


def test_documents_are_packed_as_in_training(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("ab", " \n", "", "é")), encoding="utf-8")
    stream = read_text([str(path)], BYTES)
    assert stream.read(0, len(stream)).tolist() == [256, *b"ab", 256, *"é".encode()]
    assert stream.text_bytes == 4
    assert stream.document_starts.tolist() == [0, 3]


def test_long_documents_are_the_same_tokens_as_the_whole(tmp_path):
    text = "words and more words, " * 20_000
    path = tmp_path / "long.txt"
    path.write_text(text, encoding="utf-8")
    stream = read_text([str(path)], BYTES)
    assert stream.read(1, len(stream) - 1).tolist() == list(text.encode())


def test_another_field(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"body": "ab"}\n')
    assert len(read_text([str(path)], BYTES, text_field="body")) == 3
    with pytest.raises(InputError, match="no field 'text'; its fields are body"):
        read_text([str(path)], BYTES)


@pytest.mark.parametrize("content", ["", " \n \n", None])
def test_no_text(tmp_path, content):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"empty|no such file"):
        read_text([str(path)], BYTES)


def test_a_corrupted_line_is_named(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b\n')
    with pytest.raises(InputError, match="line 2"):
        read_text([str(path)], BYTES)
