"""Shards: files of token ids in the format of llm.c and modded-nanogpt.

A shard is a header of 256 int32 and then the ids, all little-endian. header[0:3] = magic, version, number of ids:

    20240520, 1   ids are uint16: vocabularies of up to 65,536 rows
    20240801, 7   ids are uint32

Those readers ignore the rest of the header. A shard written here also holds, in header[3], the rows of the vocabulary,
in header[4:12] the sha256 of its ids and in header[12:20] the fingerprint of its tokenizer: so a header names its
content. A file with neither magic is nanoGPT's: uint16 ids and nothing else.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ..errors import InputError

HEADER_INTS = 256
HEADER_BYTES = 4 * HEADER_INTS
SHARD_TOKENS = 100_000_000  # 200 MB of uint16: the size that llm.c and modded-nanogpt use

Ids = npt.NDArray[np.int64]
_FORMATS = {"<u2": (20240520, 1), "<u4": (20240801, 7)}


def id_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest dtype on disk that holds the ids 0 .. vocab_size - 1."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def check_range(ids: npt.NDArray[np.integer], vocab_size: int, *, where: str, start: int) -> None:
    """Raise InputError naming the first id outside 0 .. vocab_size - 1 and its position, counted from `start`."""
    if ids.size and (ids.max() >= vocab_size or (ids.dtype.kind == "i" and ids.min() < 0)):
        at = int(np.argmax((ids >= vocab_size) | (ids < 0)))
        raise InputError(
            f"{where}: token {start + at:,} has id {int(ids[at])}, outside the tokenizer's vocabulary of "
            f"{vocab_size:,} ids; the file is damaged or was made with another tokenizer: prepare the text again"
        )


def save_array(path: Path, values: npt.NDArray[np.int64]) -> None:
    """Write a .npy file. Raises OSError where the disk is full, which numpy's own writing to a file does not say."""
    content = io.BytesIO()
    np.save(content, values)
    path.write_bytes(content.getbuffer())


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """One shard as the manifest lists it."""

    name: str
    tokens: int
    sha256: str
    """Of the ids' bytes: the file without its first 1024."""


class ShardWriter:
    """Writes the ids of one split to numbered shards in a folder; `close` flushes them to the disk."""

    def __init__(
        self,
        folder: Path,
        split: str,
        *,
        vocab_size: int,
        tokenizer_fingerprint: str,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        self.tokens = 0
        self._folder, self._split = folder, split
        self._vocab_size, self._tokenizer, self._shard_tokens = vocab_size, tokenizer_fingerprint, shard_tokens
        self._dtype = id_dtype(vocab_size)
        self._done: list[ShardInfo] = []
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._in_shard = 0

    def write(self, ids: npt.NDArray[np.integer]) -> None:
        """Append ids. Raises InputError for an id that the vocabulary does not have."""
        check_range(ids, self._vocab_size, where=f"{self._split} split", start=self.tokens)
        while ids.size:
            file = self._file or self._open()
            part = ids[: self._shard_tokens - self._in_shard]
            raw = part.astype(self._dtype).tobytes()
            file.write(raw)
            self._hash.update(raw)
            self._in_shard += part.size
            self.tokens += part.size
            ids = ids[part.size :]
            if self._in_shard == self._shard_tokens:
                self._finish()

    def close(self) -> tuple[ShardInfo, ...]:
        """Finish the last shard and list them all. A split without a token still has one, empty, shard."""
        if self._file or not self._done:
            self._finish()
        return tuple(self._done)

    def abandon(self) -> None:
        """Close the file without finishing it, after an error."""
        if self._file:
            self._file.close()

    def _open(self) -> BinaryIO:
        self._file = (self._folder / self._name()).open("wb")
        self._file.write(bytes(HEADER_BYTES))
        self._hash, self._in_shard = hashlib.sha256(), 0
        return self._file

    def _name(self) -> str:
        return f"{self._split}_{len(self._done):06d}.bin"

    def _finish(self) -> None:
        file = self._file or self._open()
        header = np.zeros(HEADER_INTS, dtype="<i4")
        header[:4] = *_FORMATS[self._dtype.str], self._in_shard, self._vocab_size
        header[4:12] = np.frombuffer(self._hash.digest(), dtype="<i4")
        header[12:20] = np.frombuffer(bytes.fromhex(self._tokenizer), dtype="<i4")
        file.seek(0)
        file.write(header.tobytes())
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._done.append(ShardInfo(name=self._name(), tokens=self._in_shard, sha256=self._hash.hexdigest()))
        self._file = None


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of token ids, its header checked against its size."""

    path: Path
    tokens: int
    dtype: np.dtype[np.unsignedinteger]
    offset: int
    tokenizer_fingerprint: str | None
    """None where another program wrote the shard."""

    @classmethod
    def open(cls, path: Path) -> "Shard":
        """Read and check the header. Raises InputError naming a file that is missing, truncated or of no known form."""
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                head = np.frombuffer(file.read(HEADER_BYTES).ljust(HEADER_BYTES, b"\0"), dtype="<i4")
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); prepare the text again") from None
        magic, version, tokens = (int(x) for x in head[:3])
        if magic not in (m for m, _ in _FORMATS.values()):
            return cls._headerless(path, size)
        dtype = next((np.dtype(d) for d, form in _FORMATS.items() if form == (magic, version)), None)
        if dtype is None:
            known = " and ".join(f"{m} with {v} ({np.dtype(d).name})" for d, (m, v) in _FORMATS.items())
            raise InputError(
                f"{path}: shard magic {magic} with version {version} is not known; {known} are: "
                f"write the shard again in one of these forms"
            )
        expected = HEADER_BYTES + tokens * dtype.itemsize
        if size != expected:
            raise InputError(
                f"{path}: {size:,} bytes, but its header says {tokens:,} tokens, which take {expected:,}; "
                f"the shard was {'truncated' if size < expected else 'altered'}: prepare the text again"
            )
        ours = bool(head[12:20].any())
        return cls(
            path=path,
            tokens=tokens,
            dtype=dtype,
            offset=HEADER_BYTES,
            tokenizer_fingerprint=head[12:20].tobytes().hex() if ours else None,
        )

    @classmethod
    def _headerless(cls, path: Path, size: int) -> "Shard":
        if size == 0 or size % 2:
            raise InputError(f"{path}: {size:,} bytes are no whole number of uint16 ids, and it has no shard header")
        return cls(path=path, tokens=size // 2, dtype=np.dtype("<u2"), offset=0, tokenizer_fingerprint=None)

    def ids(self) -> npt.NDArray[np.unsignedinteger]:
        """[tokens] the ids, mapped from the file."""
        if self.tokens == 0:
            return np.empty(0, dtype=self.dtype)
        mapped = np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=(self.tokens,))
        return np.asarray(mapped)  # a plain array over the same pages: slices of it cost less

    def identity(self) -> bytes:
        """What a fingerprint takes from this shard: name, size, first kilobyte (the header) and last."""
        with self.path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - HEADER_BYTES))
            return f"{self.path.name} {size} ".encode() + head + file.read()
