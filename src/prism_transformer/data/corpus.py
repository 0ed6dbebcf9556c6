"""A corpus: a folder of shards with a manifest, opened for reading.

    manifest.json               what is in the folder and where it came from; written last, so it marks a whole corpus
    train_000000.bin …          shards of ids, for train, validation and test (see shards.py)
    train_documents.npy …       where the documents of a split start: the positions of their end-of-text ids
    tokenizer/                  the tokenizer, to decode with later

A folder of llm.c's, modded-nanogpt's or nanoGPT's shards (*train*.bin and *val*.bin) without a manifest opens too.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .shards import Ids, Shard, ShardInfo, check_range
from .tokenizer import Tokenizer, load_tokenizer

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"
FORMAT = "prism-transformer corpus 1"
_FOREIGN_NAMES = {"train": "*train*.bin", "validation": "*val*.bin", "test": "*test*.bin"}


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

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "SplitInfo":
        """Of what `asdict` makes of one. Raises KeyError and TypeError for anything else."""
        return cls(**{**values, "shards": tuple(ShardInfo(**shard) for shard in values["shards"])})


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
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise InputError(f"{path}: format {values['format']!r} is not known; {FORMAT!r} is")
            values["sources"] = tuple(SourceInfo(**source) for source in values["sources"])
            values["counts"] = Counts(**values["counts"])
            values["most_frequent"] = tuple(values["most_frequent"])
            values["splits"] = {name: SplitInfo.from_json(split) for name, split in values["splits"].items()}
            return cls(**values)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); prepare the text again") from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: damaged, or no manifest of a corpus ({error}); prepare the text again") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenStream:
    """The ids of one split, read from its shards as if they were one array."""

    where: str
    """The split and its folder, for messages."""
    parts: Sequence[npt.NDArray[np.unsignedinteger]]
    names: Sequence[str]
    """Of the parts, for messages."""
    tokenizer: Tokenizer
    starts_file: Path | None = None
    stated_text_bytes: int | None = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, count: int) -> Ids:
        """[count] the ids from `start` on. Raises InputError naming shard and position of an id out of range."""
        if not 0 <= start <= start + count <= len(self):
            raise IndexError(f"{self.where}: tokens {start} .. {start + count} of {len(self)}")
        ids = np.empty(count, dtype=np.int64)
        done, part = 0, bisect_right(self._ends, start)
        while done < count:
            first = start + done - (self._ends[part - 1] if part else 0)
            piece = self.parts[part][first : first + count - done]
            check_range(piece, self.tokenizer.vocab_size, where=self.names[part], start=first)
            ids[done : done + piece.size] = piece
            done, part = done + piece.size, part + 1
        return ids

    @cached_property
    def document_starts(self) -> npt.NDArray[np.int64]:
        """[documents] the positions of the end-of-text ids that precede documents."""
        if self.starts_file:
            starts: npt.NDArray[np.int64] = np.load(self.starts_file)
            return starts
        found, offset = [], 0
        for part in self.parts:
            found.append(np.flatnonzero(part == self.tokenizer.end_of_text) + offset)
            offset += part.size
        return np.concatenate(found).astype(np.int64)

    @cached_property
    def text_bytes(self) -> int:
        """UTF-8 bytes of the split's text, end-of-text not counted. Of another program's shards: decoded to count."""
        if self.stated_text_bytes is not None:
            return self.stated_text_bytes
        edges = [-1, *self.document_starts, len(self)]
        between = (self.read(a + 1, b - a - 1) for a, b in pairwise(edges))
        return sum(len(self.tokenizer.decode(ids).encode()) for ids in between)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(part.size for part in self.parts))


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """A prepared folder. `manifest` is None for shards of another program."""

    folder: Path
    tokenizer: Tokenizer
    shards: dict[str, tuple[Shard, ...]]
    manifest: Manifest | None
    _streams: dict[Split, TokenStream] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(cls, folder: Path, *, tokenizer: str | None = None) -> "Corpus":
        """Check the headers and sizes of all shards and open them.

        `tokenizer` (as for `load_tokenizer`) is needed where there is no manifest to name it. Raises InputError naming
        every shard that is missing, truncated or of another tokenizer.
        """
        if (folder / MANIFEST).is_file():
            return cls._open_own(folder)
        shards = {split: _open_all(sorted(folder.glob(pattern))) for split, pattern in _FOREIGN_NAMES.items()}
        if not shards["train"] or not shards["validation"]:
            raise InputError(f"{folder}: no corpus: it has neither {MANIFEST} nor train and val shards (.bin)")
        if tokenizer is None:
            raise InputError(
                f"{folder}: its shards do not say which tokenizer made them; name it "
                f"(gpt2, bytes, or a Hugging Face tokenizer's folder): nanoGPT's and llm.c's data sets are gpt2"
            )
        return cls(folder=folder, tokenizer=load_tokenizer(tokenizer), shards=shards, manifest=None)

    @classmethod
    def _open_own(cls, folder: Path) -> "Corpus":
        manifest = Manifest.read(folder)
        tokenizer = load_tokenizer(folder / TOKENIZER, name=manifest.tokenizer["name"])
        problems: list[str] = []
        if tokenizer.fingerprint != manifest.tokenizer["fingerprint"]:
            problems.append(f"{folder / TOKENIZER}: not the tokenizer of the manifest; prepare the text again")
        shards = {}
        for name, split in manifest.splits.items():
            try:
                shards[name] = _open_all([folder / shard.name for shard in split.shards])
            except InputError as error:
                problems += error.problems
                continue
            for shard, stated in zip(shards[name], split.shards, strict=True):
                if (shard.tokens, shard.tokenizer_fingerprint) != (stated.tokens, tokenizer.fingerprint):
                    problems.append(f"{shard.path}: not the shard of the manifest; prepare the text again")
        if problems:
            raise InputError(problems)
        return cls(folder=folder, tokenizer=tokenizer, shards=shards, manifest=manifest)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the tokenizer and each shard's name, size and header, which in our shards hashes the ids."""
        digest = hashlib.sha256(self.tokenizer.fingerprint.encode())
        for split in SPLITS:
            for shard in self.shards.get(split, ()):
                digest.update(shard.identity())
        return digest.hexdigest()

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer's name and the start of its fingerprint: what a message about another one shows."""
        return f"{self.tokenizer.name} ({self.tokenizer.fingerprint[:12]})"

    @cached_property
    def shard_hashes(self) -> dict[str, str]:
        """The name of each shard and a hash of what identifies it, so that a message can name the one that differs."""
        shards = (shard for split in SPLITS for shard in self.shards.get(split, ()))
        return {shard.path.name: hashlib.sha256(shard.identity()).hexdigest()[:16] for shard in shards}

    def split(self, name: Split) -> TokenStream:
        """The tokens of "train", "validation" or "test": one stream each, which keeps what reading all tokens found."""
        if name not in self._streams:
            self._streams[name] = self._new_stream(name)
        return self._streams[name]

    def _new_stream(self, name: Split) -> TokenStream:
        shards = self.shards.get(name, ())
        if not shards:
            raise InputError(
                f"{self.folder}: no {name} split; it has {', '.join(k for k, v in self.shards.items() if v)}"
            )
        info = self.manifest.splits[name] if self.manifest else None
        return TokenStream(
            where=f"{name} split of {self.folder}",
            parts=[shard.ids() for shard in shards],
            names=[str(shard.path) for shard in shards],
            tokenizer=self.tokenizer,
            starts_file=self.folder / f"{name}_documents.npy" if info else None,
            stated_text_bytes=info.text_bytes if info else None,
        )


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like one that `Corpus.open` opens, damaged or not."""
    if not folder.is_dir():
        return False
    try:
        ours = FORMAT.rsplit(" ", 1)[0] in (folder / MANIFEST).read_text(encoding="utf-8")
    except (OSError, ValueError):
        ours = False
    return ours or all(any(folder.glob(_FOREIGN_NAMES[split])) for split in ("train", "validation"))


def _open_all(paths: Sequence[Path]) -> tuple[Shard, ...]:
    """Every shard, or an InputError with the problems of all."""
    shards: list[Shard] = []
    problems: list[str] = []
    for path in paths:
        try:
            shards.append(Shard.open(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return tuple(shards)
