"""A corpus: a folder of shards with a manifest, opened for reading.

    manifest.json               what is in the folder and where it came from; written last, so it marks a whole corpus
    train_000000.bin …          shards of ids, for train, validation and test (see shards.py)
    train_documents.npy …       where the documents of a split start: the positions of their end-of-text ids
    tokenizer/                  the tokenizer, to decode with later

A folder of llm.c's, modded-nanogpt's or nanoGPT's shards (*train*.bin and *val*.bin) without a manifest opens too.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .manifest import FORMAT, MANIFEST, SPLITS, Manifest, Split
from .shards import Ids, Shard, check_range
from .tokenizer import Tokenizer, load_tokenizer

TOKENIZER = "tokenizer"
_FOREIGN_NAMES = {"train": "*train*.bin", "validation": "*val*.bin", "test": "*test*.bin"}


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
