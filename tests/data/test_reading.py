import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from prism_transformer.data.reading import Tally, is_binary, read_documents
from prism_transformer.errors import InputError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(path: Path, text_field: str = "text") -> tuple[list[str], int]:
    tally = Tally()
    texts = ["".join(document.blocks) for document in read_documents(path, text_field=text_field, tally=tally)]
    return texts, tally.replaced


def lines(*values: object) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["notes.txt", "notes.md", "notes"])
def test_text_file_is_one_document(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / (name + suffix)
    path.write_bytes(COMPRESS[suffix]("one\n\ntwo – 漢\r\n".encode()))
    assert read(path) == (["one\n\ntwo – 漢\r\n"], 0)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_each_json_line_is_a_document(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / (name + suffix)
    path.write_bytes(COMPRESS[suffix](lines({"text": "one", "id": 1}, {"text": "two\nlines"})))
    assert read(path) == (["one", "two\nlines"], 0)


def test_other_field_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"body": "one", "text": "no"}))
    assert read(path, "body") == (["one"], 0)


def test_json_that_is_no_json_lines_is_text(tmp_path: Path) -> None:
    path = tmp_path / "package.json"
    path.write_text('{\n "name": "x"\n}\n')
    assert read(path) == (['{\n "name": "x"\n}\n'], 0)


def test_blank_lines_are_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + lines({"text": "one"}) + b"  \n" + lines({"text": ""}, {"text": None}))
    assert read(path) == (["one", "", ""], 0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "unfinished', r"a\.jsonl, line 3: no JSON"),
        (
            b'{"body": "x", "id": 1}',
            r"a\.jsonl, line 3: no field 'text'; its fields are body, id; .*: --text-field N",
        ),
        (b"{}", r"a\.jsonl, line 3: no field 'text'; its fields are none"),
        (b'["text"]', r"a\.jsonl, line 3: list instead of an object"),
        (b'{"text": 5}', r"a\.jsonl, line 3: field 'text' holds int, not text"),
    ],
)
def test_broken_line_is_named_by_file_and_number(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"text": "one"}) + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=problem):
        read(path)


@pytest.mark.parametrize(
    ("raw", "text", "replaced"),
    [
        (b"caf\xe9 and \xff\xfe", "caf\ufffd and \ufffd\ufffd", 3),
        ("café".encode(), "café", 0),
        ("\ufffd is fine".encode(), "\ufffd is fine", 0),  # it was in the file: nothing to count
        (b"\xef\xbb\xbfmarked", "marked", 0),
        (b"cut \xe6\xbc", "cut \ufffd\ufffd", 2),  # a character without its last byte
    ],
)
def test_bytes_that_are_no_utf8_are_replaced_and_counted(tmp_path: Path, raw: bytes, text: str, replaced: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    assert read(path) == ([text], replaced)


def test_character_across_blocks_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    text = "x" * (2**20 - 1) + "漢" + "y" * 10
    path.write_bytes(text.encode())
    assert read(path) == ([text], 0)


def test_half_a_surrogate_pair_in_json_is_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a\\ud83d b \\ud83d\\ude42"}\n{"text": "caf\xe9"}\n')
    assert read(path) == (["a\ufffd b 🙂", "caf\ufffd"], 2)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "junk"])
def test_damaged_compressed_file_is_refused_by_name(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    whole = COMPRESS[suffix]("".join(f"line {i} of some text\n" for i in range(9999)).encode())
    path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"no archive at all")
    with pytest.raises(InputError, match=rf"a\.txt\{suffix}: cannot be read"):
        read(path)


def test_zst_of_several_frames_is_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(COMPRESS[".zst"](b"one ") + COMPRESS[".zst"](b"two"))
    assert read(path) == (["one two"], 0)


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
def test_parquet_rows_are_documents(tmp_path: Path, kind: pyarrow.DataType) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"id": [1, 2, 3], "text": pyarrow.array(["one", None, "漢"], type=kind)})
    pyarrow.parquet.write_table(table, path)
    assert read(path) == (["one", "", "漢"], 0)


def test_parquet_with_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column = pyarrow.array([b"caf\xe9"], type=pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), path)
    assert read(path) == (["caf\ufffd"], 1)


def test_parquet_without_the_column_names_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "body": ["x"]}), path)
    with pytest.raises(InputError, match=r"a\.parquet: no column 'text'; its columns are id, body"):
        read(path)
    with pytest.raises(InputError, match=r"column 'id' holds int64, not text"):
        read(path, "id")


def test_damaged_parquet_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read as parquet"):
        read(path)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_binary_files_are_told_from_text(tmp_path: Path, suffix: str) -> None:
    text, binary = tmp_path / f"text{suffix}", tmp_path / f"binary{suffix}"
    text.write_bytes(COMPRESS[suffix](b"caf\xe9"))
    binary.write_bytes(COMPRESS[suffix](b"\x7fELF\0\0"))
    assert (is_binary(text), is_binary(binary)) == (False, True)
