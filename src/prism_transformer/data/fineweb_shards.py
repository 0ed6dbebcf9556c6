"""`prism data prepare fineweb-gpt2`: FineWeb as GPT-2's tokens, in the shards that other people have made.

fineweb_train_000001.bin … 000103   100M tokens each, but perhaps the last: about 10.3B
fineweb_val_000000.bin              100M tokens
source.json                         where they are from, their sizes and sha256; moved to its place last
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import read_json, sha256, write_json
from .corpus import Corpus
from .fineweb_network import Patience, parse_tokens, require_room
from .publish import claim, publish
from .shards import HEADER_BYTES, SHARD_TOKENS, Shard, check_range
from .tokenizer import Gpt2Tokenizer

REPOSITORY = "kjj0/fineweb10B-gpt2"
REVISION = "889765ea1f903759787add96995d81171b632d0c"
SHARDS = 103
SOURCE = "source.json"
MEDIUM_TOKENS = 10_485_760_000

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FineWebShardSettings:
    """How much of FineWeb's ready shards."""

    tokens: str = "2.9B"
    """Tokens of training text, in whole shards of 100M, of which there are 10.3B.
    Enough for the paper's small model (2.9B), just short of what medium takes (10.5B: 1.02 epochs)."""
    source: str = REPOSITORY
    """The data set of the hub, or a folder that holds its files."""
    revision: str = REVISION
    """The commit of the hub; a folder has none."""


def prepare_fineweb_shards(settings: FineWebShardSettings, folder: Path, *, say: Say = print) -> Corpus:
    """Fetch the shards into `folder`, each with its header and size checked, or go on where an earlier call ended.

    Raises InputError for settings and shards that cannot be, RunError where the network stays away.
    """
    count = _shard_count(settings)
    names = ["fineweb_val_000000.bin", *(f"fineweb_train_{number:06d}.bin" for number in range(1, count + 1))]
    with claim(folder, mark=SOURCE, resume=True) as partial:
        for place in (folder, partial):  # finished, or begun
            if (place / SOURCE).exists():
                _refuse_differences(folder, read_json(place / SOURCE), settings, names)
        if (folder / SOURCE).exists():
            say(f"data: {folder} holds these shards")
        else:
            _fetch_all(settings, names, folder, partial, say)
            publish(partial, mark=SOURCE)
    corpus = Corpus.open(folder, tokenizer="gpt2")
    tokens = sum(shard.tokens for shard in corpus.shards["train"])
    say(f"tokens: {tokens:,} train, {sum(shard.tokens for shard in corpus.shards['validation']):,} validation")
    if parse_tokens(settings.tokens) > tokens:
        say(
            f"warning: all {SHARDS} shards hold {tokens:,} tokens of training text, fewer than the "
            f"{parse_tokens(settings.tokens):,} asked for; the paper's medium model takes {MEDIUM_TOKENS:,}"
        )
    return corpus


def _shard_count(settings: FineWebShardSettings) -> int:
    return min(SHARDS, math.ceil(parse_tokens(settings.tokens) / SHARD_TOKENS))


def _stated(settings: FineWebShardSettings) -> dict[str, Any]:
    folder = Path(settings.source).expanduser()
    if folder.is_dir():
        return {"source": str(folder.resolve()), "revision": None}
    return {"source": settings.source, "revision": settings.revision}


def _refuse_differences(folder: Path, known: dict[str, Any], settings: FineWebShardSettings, names: list[str]) -> None:
    """Raise InputError naming what differs between the shards that are asked for and a source.json."""
    asked = {**_stated(settings), "shards": len(names)}
    before = {**{key: known.get(key) for key in ("source", "revision")}, "shards": len(known.get("files", ()))}
    if changed := [f"{key} was {before[key]}, is now {asked[key]}" for key in asked if asked[key] != before[key]]:
        raise InputError(
            "\n  ".join([f"{folder} holds other shards of FineWeb; choose another folder, or delete it:", *changed])
        )


def _fetch_all(settings: FineWebShardSettings, names: list[str], folder: Path, partial: Path, say: Say) -> None:
    """Every shard that is not there yet, checked, into `partial`.

    source.json is there before the first shard, so that a later call cannot mix them with others, and states the
    files when all are there.
    """
    for left in partial.glob(".*.tmp"):  # by a process that died
        left.unlink()
    there = {path.name for place in (partial, folder) for path in place.glob("*.bin")}
    missing = [name for name in names if name not in there]
    say(require_room(folder, len(missing) * (HEADER_BYTES + 2 * SHARD_TOKENS)))
    place = _Place(settings, Patience(say))
    files = {}
    for number, name in enumerate(missing, start=1):
        unfinished = partial / f".{name}.tmp"
        files[name] = place.get(name, unfinished)
        try:
            _check(unfinished, name)
        except InputError:
            unfinished.unlink()
            raise
        if not (partial / SOURCE).exists():
            write_json(partial / SOURCE, {**_stated(settings), "files": dict.fromkeys(names)})
        unfinished.rename(partial / name)
        say(f"[{number}/{len(missing)}] {name}")
    for name in names:
        if name not in files:  # an earlier call has fetched it
            files[name] = _described(partial / name if (partial / name).exists() else folder / name)
    write_json(partial / SOURCE, {**_stated(settings), "files": {name: files[name] for name in names}})


def _check(path: Path, name: str) -> None:
    """Raise InputError where a shard's header, size or ids are not those of GPT-2's tokens."""
    try:
        shard = Shard.open(path)
    except InputError as error:
        raise InputError([f"{name}: {problem}" for problem in error.problems]) from None
    if shard.offset != HEADER_BYTES or shard.dtype != np.dtype("<u2"):
        raise InputError(f"{name}: no header of a shard of 16-bit ids; it is damaged, or not of this data set")
    if shard.tokens > SHARD_TOKENS:
        raise InputError(f"{name}: {shard.tokens:,} tokens, but a shard of this data set has {SHARD_TOKENS:,} at most")
    check_range(shard.ids(), Gpt2Tokenizer.vocab_size, where=name, start=0)


def _described(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256(path)}


class _Place:
    """The hub's data set or a folder, behind one interface."""

    def __init__(self, settings: FineWebShardSettings, patience: Patience) -> None:
        from fsspec.core import url_to_fs

        stated = _stated(settings)
        self._is_local, self._name, self._patience = stated["revision"] is None, settings.source, patience
        hub = f"hf://datasets/{settings.source}@{settings.revision}"
        self._files, self._root = url_to_fs(stated["source"] if self._is_local else hub)

    def get(self, name: str, target: Path) -> dict[str, Any]:
        """Copy one file; its size and sha256. The hub's must have those that the hub states."""
        while True:
            try:
                self._files.get_file(f"{self._root}/{name}", str(target))
                found = _described(target)
                self._compare(name, found)
                self._patience.worked()
                return found
            except FileNotFoundError:
                raise InputError(f"{self._name}: has no {name}; it is not the data set, or only a part of it") from None
            except InputError:
                raise
            except Exception as error:  # the libraries below raise anything for a connection that broke
                if self._is_local:
                    raise
                self._patience.failed(f"fetching {name}", error)

    def _compare(self, name: str, found: dict[str, Any]) -> None:
        stated = self._files.info(f"{self._root}/{name}")
        expected = (stated.get("lfs") or {}).get("sha256")
        if found["size"] != stated["size"] or (expected and found["sha256"] != expected):
            raise OSError(f"{name}: {found['size']:,} bytes came that are not the hub's {stated['size']:,}")
