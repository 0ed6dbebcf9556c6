"""The readings of the sources: a survey, a sample to train a tokenizer on, and the one in which all text is encoded."""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .manifest import SPLITS, SplitInfo
from .pieces import pieces, take_parts
from .reading import Document, Tally
from .shards import ShardWriter, save_array
from .sources import Sources
from .splits import key_of, new_key, text_key
from .tokenizer import Tokenizer, UnsignedIds

SAMPLE_BYTES = 64_000_000  # more text changes the merges of a small vocabulary little
_BATCH_CHARACTERS = 4_000_000
_BATCH_PIECES = 20_000
_SECONDS_BETWEEN_NEWS = 10


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What the first reading found: the documents that hold text."""

    numbers: npt.NDArray[np.int64]
    """[documents] which of all documents they are."""
    keys: npt.NDArray[np.uint64]
    """[documents] the hash of the text, or of the group."""
    sizes: npt.NDArray[np.int64]
    """[documents] UTF-8 bytes."""
    empty: int
    """Documents that hold none."""
    replaced: int
    """Bytes that were no UTF-8."""


def survey(sources: Sources) -> Survey:
    """Read everything once. Raises InputError for faults in the files, and where there is no text at all."""
    numbers, keys, sizes = array("q"), array("Q"), array("q")
    tally, count = Tally(), 0
    for document in sources.documents(tally):
        key, size, blank = _measure(document)
        if not blank:
            numbers.append(count)
            keys.append(key)
            sizes.append(size)
        count += 1
    if not numbers:
        raise InputError(f"{sources.origin}: no text in it, only {count:,} empty or blank documents")
    return Survey(
        numbers=np.frombuffer(numbers, dtype=np.int64),
        keys=np.frombuffer(keys, dtype=np.uint64),
        sizes=np.frombuffer(sizes, dtype=np.int64),
        empty=count - len(numbers),
        replaced=tally.replaced,
    )


def _measure(document: Document) -> tuple[int, int, bool]:
    """The split key of a document, its bytes, and whether it is empty or blank."""
    digest, size, blank = new_key(), 0, True
    for block in document.blocks:
        raw = block.encode()
        digest.update(raw)
        size += len(raw)
        blank = blank and (not block or block.isspace())
    return key_of(digest) if document.group is None else text_key(document.group), size, blank


class Part(NamedTuple):
    """A piece of a document, all of it in one split."""

    document: int
    """Its place in the survey."""
    split: int
    """Its place in SPLITS."""
    first: bool
    """Whether the document, or its part in this split, starts here."""
    text: str


def read_parts(sources: Sources, found: Survey, edges: npt.NDArray[np.int64]) -> Iterator[Part]:
    """All text once more, in order, cut into pieces and by split. `edges` as of `split_edges`."""
    place = 0
    for number, document in enumerate(sources.documents(Tally())):
        if place == len(found.numbers) or number != found.numbers[place]:
            continue
        before = -1
        for split, text in take_parts(pieces(document.blocks), edges[place].tolist()):
            yield Part(place, split, split != before, text)
            before = split
        place += 1


def training_sample(sources: Sources, found: Survey, edges: npt.NDArray[np.int64]) -> Iterator[str]:
    """About SAMPLE_BYTES of the training split: documents by the order of their hashes, which is a random one."""
    order = np.argsort(found.keys, kind="stable")
    train_bytes = edges[order, 0]
    starts = np.cumsum(train_bytes) - train_bytes
    taken = starts < SAMPLE_BYTES
    sizes = np.minimum(SAMPLE_BYTES - starts[taken], train_bytes[taken])
    left = dict(zip(order[taken].tolist(), sizes.tolist(), strict=True))
    for part in read_parts(sources, found, edges):
        if part.split == 0 and left.get(part.document, 0) > 0:
            left[part.document] -= len(part.text.encode())
            yield part.text
            if left[part.document] <= 0:
                del left[part.document]
        if not left:
            return


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What the encoding reading wrote."""

    splits: dict[str, SplitInfo]
    id_counts: npt.NDArray[np.int64]
    """[splits, vocab_size] how often each id was written."""


def encode(
    sources: Sources,
    found: Survey,
    edges: npt.NDArray[np.int64],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    say: Callable[[str], None],
) -> Encoded:
    """Encode all text on all cores and write shards and document starts of every split into `folder`.

    While one batch is encoded, the next is read. Raises InputError where the sources changed since the survey.
    """
    output, total, said_at = SplitOutput(folder, tokenizer), int(found.sizes.sum()), time.monotonic()
    try:
        for batch, ids in encoded_batches(_batches(read_parts(sources, found, edges)), tokenizer):
            output.add(batch, ids)
            if time.monotonic() - said_at > _SECONDS_BETWEEN_NEWS:
                said_at = time.monotonic()
                say(f"encoded {output.text_bytes / total:.0%}")
        encoded = output.close()
    finally:
        output.abandon()
    if output.text_bytes != total:
        raise InputError(f"{sources.origin}: the text changed while it was being read; run the command again")
    return encoded


def encoded_batches(
    batches: Iterable[Sequence[Part]], tokenizer: Tokenizer
) -> Iterator[tuple[Sequence[Part], list[UnsignedIds]]]:
    """Each batch with its ids. The next batch is read while one is encoded."""
    waiting: tuple[Sequence[Part], Future[list[UnsignedIds]]] | None = None
    with ThreadPoolExecutor(1) as pool:
        for batch in batches:
            future = pool.submit(tokenizer.encode_batch, [part.text for part in batch])
            if waiting:
                yield waiting[0], waiting[1].result()
            waiting = batch, future
        if waiting:
            yield waiting[0], waiting[1].result()


def _batches(parts: Iterable[Part]) -> Iterator[list[Part]]:
    batch: list[Part] = []
    characters = 0
    for part in parts:
        batch.append(part)
        characters += len(part.text)
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_PIECES:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class SplitOutput:
    """The shards and document starts of the three splits."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        self._writers = [
            ShardWriter(folder, split, vocab_size=tokenizer.vocab_size, tokenizer_fingerprint=tokenizer.fingerprint)
            for split in SPLITS
        ]
        self._starts = [array("q") for _ in SPLITS]
        self._text_bytes = [0 for _ in SPLITS]
        self._id_counts = np.zeros((len(SPLITS), tokenizer.vocab_size), dtype=np.int64)

    def add(self, batch: Sequence[Part], encoded: Sequence[UnsignedIds]) -> None:
        mark = np.array([self._tokenizer.end_of_text], dtype=np.uint32)
        for split, writer in enumerate(self._writers):
            ids: list[UnsignedIds] = []
            at = writer.tokens
            for part, part_ids in zip(batch, encoded, strict=True):
                if part.split != split:
                    continue
                if part.first:
                    self._starts[split].append(at)
                    ids.append(mark)
                    at += 1
                ids.append(part_ids)
                at += part_ids.size
                self._text_bytes[split] += len(part.text.encode())
            if ids:
                written = np.concatenate(ids)
                writer.write(written)
                self._id_counts[split] += np.bincount(written, minlength=self._tokenizer.vocab_size)

    @property
    def text_bytes(self) -> int:
        return sum(self._text_bytes)

    def tokens(self, split: int) -> int:
        """Tokens of one split so far; `split` is its place in SPLITS."""
        return self._writers[split].tokens

    def close(self) -> Encoded:
        splits: dict[str, SplitInfo] = {}
        for name, writer, starts, text_bytes in zip(SPLITS, self._writers, self._starts, self._text_bytes, strict=True):
            shards = writer.close()
            save_array(self._folder / f"{name}_documents.npy", np.array(starts, dtype=np.int64))
            splits[name] = SplitInfo(documents=len(starts), tokens=writer.tokens, text_bytes=text_bytes, shards=shards)
        return Encoded(splits=splits, id_counts=self._id_counts)

    def abandon(self) -> None:
        for writer in self._writers:
            writer.abandon()
