"""Documents out of one file: plain text, JSON lines or parquet, compressed or not, in bounded memory.

A text file is one document; each line of .jsonl and each row of .parquet is one. Bytes that are no UTF-8 become U+FFFD
and are counted. A document is handed out as blocks of text, to be read before the next document is asked for.
"""

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from .compressed import OPENERS, open_bytes

_BLOCK_BYTES = 2**20
_SNIFFED_BYTES = 2**13
_SURROGATE = re.compile("[\ud800-\udfff]")
STDIN_SUFFIX = ".stdin"


@dataclass(frozen=True)
class Document:
    """One text. Documents of the same group fall into the same split; without one, those of the same text do."""

    blocks: Iterable[str]
    group: str | None = None


@dataclass
class Tally:
    """What reading had to mend."""

    replaced: int = 0
    """Bytes that were no UTF-8, and halves of surrogate pairs written out in JSON."""

    def mend(self, text: str) -> str:
        """The text with each lone surrogate, Python's mark of a byte that it cannot decode, replaced and counted."""
        if text.isascii():
            return text
        mended, count = _SURROGATE.subn("\ufffd", text)
        self.replaced += count
        return mended


def read_documents(path: Path, *, text_field: str, tally: Tally) -> Iterator[Document]:
    """The documents of one file. Raises InputError naming the file, and the line or the columns where it applies."""
    kind = _kind(path)
    if kind == ".parquet":
        yield from _parquet_rows(path, text_field, tally)
        return
    with open_bytes(path) as file:
        if kind == ".jsonl" or (kind in (".json", STDIN_SUFFIX) and _starts_with_object(file)):
            yield from _json_lines(file, path, text_field, tally)
        else:
            yield Document(_text_blocks(file, tally))


def is_binary(path: Path) -> bool:
    """Whether the start of a file holds a NUL byte, which no text does. Parquet files are read by their own rule."""
    if _kind(path) == ".parquet":
        return False
    with open_bytes(path) as file:
        return b"\0" in file.peek(_SNIFFED_BYTES)[:_SNIFFED_BYTES]


def _kind(path: Path) -> str:
    """The suffix that decides how a file is read, that of a compressed file being the one before; "" for plain text."""
    name = Path(path.stem) if path.suffix.lower() in OPENERS else path
    kind = {".ndjson": ".jsonl"}.get(name.suffix.lower(), name.suffix.lower())
    return kind if kind in (".jsonl", ".json", ".parquet", STDIN_SUFFIX) else ""


def _starts_with_object(file: io.BufferedReader) -> bool:
    """Whether the first line is a JSON object, as in JSON lines. A line longer than the peek is taken by its start."""
    head = file.peek(_SNIFFED_BYTES)[:_SNIFFED_BYTES].lstrip()
    line, newline, _ = head.partition(b"\n")
    if not newline:
        return re.match(rb'\{\s*"', head) is not None
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _text_blocks(file: io.BufferedReader, tally: Tally) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    first = True
    while block := file.read(_BLOCK_BYTES):
        text = decoder.decode(block)
        yield tally.mend(text.removeprefix("\ufeff") if first else text)
        first = False
    yield tally.mend(decoder.decode(b"", final=True))


def _json_lines(file: io.BufferedReader, path: Path, text_field: str, tally: Tally) -> Iterator[Document]:
    for number, line in enumerate(file, start=1):
        text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        if text.isspace():
            continue
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: no JSON ({error}); mend or remove the line") from None
        yield Document((tally.mend(_field(value, text_field, f"{path}, line {number}")),))


def _field(value: Any, text_field: str, where: str) -> str:
    """The text of one JSON line; null counts as an empty text."""
    if not isinstance(value, dict):
        raise InputError(f'{where}: {type(value).__name__} instead of an object like {{"{text_field}": "…"}}')
    if text_field not in value:
        raise InputError(
            f"{where}: no field {text_field!r}; its fields are {', '.join(map(str, value)) or 'none'}; "
            f"name the one that holds the text: --text-field NAME"
        )
    text = value[text_field]
    if not isinstance(text, str | None):
        raise InputError(f"{where}: field {text_field!r} holds {type(text).__name__}, not text")
    return text or ""


def _parquet_rows(path: Path, text_field: str, tally: Tally) -> Iterator[Document]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = file.schema_arrow
            if text_field not in columns.names:
                raise InputError(
                    f"{path}: no column {text_field!r}; its columns are {', '.join(columns.names)}; "
                    f"name the one that holds the text: --text-field NAME"
                )
            kind = columns.field(text_field).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise InputError(f"{path}: column {text_field!r} holds {kind}, not text")
            for rows in file.iter_batches(batch_size=256, columns=[text_field]):
                # As bytes, since a string column may hold what is no UTF-8.
                for value in rows.column(0).cast(pyarrow.large_binary()):
                    text = (value.as_py() or b"").decode("utf-8", "surrogateescape")
                    yield Document((tally.mend(text),))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as parquet ({error})") from None
