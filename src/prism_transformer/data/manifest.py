"""What is in a corpus and where it came from: manifest.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..files import read_json
from ..settings import from_mapping
from .shards import ShardInfo

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
MANIFEST = "manifest.json"
FORMAT = "prism-transformer corpus 1"


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """One file that the text came from."""

    name: str
    size: int
    modified_ns: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """What one split holds."""

    documents: int
    tokens: int
    """Ids on disk, the end-of-text before each document included."""
    text_bytes: int
    """UTF-8 bytes of the text, by which bits per byte are taken."""
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the sources. tokens_total == tokens_kept + tokens_dropped."""

    files: int = 0
    files_hidden: int = 0
    """Skipped in folders: the name, or a folder above it, starts with a dot."""
    files_binary: int = 0
    """Skipped in folders: a NUL byte near the start."""
    documents: int = 0
    documents_empty: int = 0
    """Skipped: nothing but white space."""
    documents_cut: int = 0
    """Longer than half a held-out split and across its edge: their parts are in two or three splits."""
    bytes_replaced: int = 0
    """That were no UTF-8; each became U+FFFD."""
    tokens_total: int = 0
    tokens_kept: int = 0
    tokens_dropped: int = 0
    """Always 0 here: documents are packed whole. The windows of a batch drop the last tokens of an epoch."""
    tokens_unknown: int = 0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of manifest.json."""

    settings: dict[str, Any]
    sources: tuple[SourceInfo, ...]
    origin: str
    """The sources in words."""
    tokenizer: dict[str, Any]
    """name, fingerprint, vocab_size, end_of_text."""
    splits: dict[str, SplitInfo]
    counts: Counts
    most_frequent: tuple[dict[str, Any], ...]
    """The most frequent ids of the training split: id, text, share."""
    lost_share: float
    """Of the characters at the start of the text, how many the tokenizer does not give back."""
    packing: str = "each document preceded by end-of-text, packed without a gap; nothing cropped or padded"
    format: str = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Raises InputError where the file is missing, damaged or another program's."""
        path = folder / MANIFEST
        try:
            values = read_json(path)
        except InputError as error:
            raise InputError([*error.problems, f"{folder}: prepare the text again"]) from None
        if values.get("format") != FORMAT:
            raise InputError(f"{path}: format {values.get('format')!r} is not known; {FORMAT!r} is")
        try:
            return from_mapping(cls, values, where=str(path))
        except InputError as error:
            raise InputError(
                [*error.problems, f"{path}: damaged, or no manifest of a corpus; prepare the text again"]
            ) from None
