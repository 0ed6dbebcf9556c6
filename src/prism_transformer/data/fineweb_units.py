"""A corpus that grows unit by unit, so that a kill loses one unit at the most and repeats none.

    unit-000000/   the shards and document starts of some documents, and unit.json: where reading goes on behind them

A unit is written under another name and renamed when it is on the disk, so it is there whole or not at all. In the end
the files of all units become those of one corpus; a process that dies meanwhile leaves what another can finish.
"""

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..files import read_json, sync_file, sync_folder, write_json
from ..settings import from_mapping
from .encode import Encoded
from .manifest import SPLITS, SplitInfo
from .shards import ShardInfo, save_array

UNIT = "unit.json"
_BEGUN = "unit.tmp"
_COUNTS = "id_counts.npy"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one unit holds."""

    settings: dict[str, Any]
    """Of the preparation that it is a part of."""
    position: dict[str, Any] | None
    """Of the stream, behind its last document."""
    splits: dict[str, SplitInfo]
    empty: int
    """Documents without text that were skipped."""
    ended: bool
    """Whether the stream has nothing behind it."""


class Units:
    """The finished units in a folder, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder / _BEGUN, ignore_errors=True)  # of a process that died
        self._places = sorted(folder.glob("unit-*"))
        self.done = [_read(place) for place in self._places]

    @property
    def train_tokens(self) -> int:
        return sum(unit.splits["train"].tokens for unit in self.done)

    def begin(self) -> Path:
        """An empty folder for the next unit's files."""
        place = self.folder / _BEGUN
        place.mkdir()
        return place

    def commit(self, unit: Unit, encoded: Encoded) -> None:
        """Make what lies in the folder of `begin` the next unit."""
        place = self.folder / _BEGUN
        save_array(place / _COUNTS, encoded.id_counts)
        for path in place.iterdir():
            sync_file(path)
        write_json(place / UNIT, asdict(unit))
        target = self.folder / f"unit-{len(self.done):06d}"
        place.rename(target)
        sync_folder(self.folder)
        self._places.append(target)
        self.done.append(unit)

    def merge(self) -> Encoded:
        """Move the shards of all units into the folder above them, numbered through, and write the document starts."""
        splits: dict[str, SplitInfo] = {}
        for name in SPLITS:
            shards = self._move_shards(name)
            save_array(self.folder / f"{name}_documents.npy", self._starts(name))
            infos = [unit.splits[name] for unit in self.done]
            splits[name] = SplitInfo(
                documents=sum(info.documents for info in infos),
                tokens=sum(info.tokens for info in infos),
                text_bytes=sum(info.text_bytes for info in infos),
                shards=shards,
            )
        return Encoded(splits=splits, id_counts=sum(np.load(place / _COUNTS) for place in self._places))

    def _move_shards(self, split: str) -> tuple[ShardInfo, ...]:
        moved: list[ShardInfo] = []
        for place, unit in zip(self._places, self.done, strict=True):
            for shard in unit.splits[split].shards:
                if shard.tokens == 0:
                    continue
                target = self.folder / f"{split}_{len(moved):06d}.bin"
                if (place / shard.name).exists():  # else an earlier process has moved it
                    (place / shard.name).rename(target)
                moved.append(replace(shard, name=target.name))
        return tuple(moved)

    def _starts(self, split: str) -> npt.NDArray[np.int64]:
        offset, found = 0, [np.empty(0, dtype=np.int64)]
        for place, unit in zip(self._places, self.done, strict=True):
            found.append(np.load(place / f"{split}_documents.npy") + offset)
            offset += unit.splits[split].tokens
        return np.concatenate(found)


def remove_units(folder: Path) -> None:
    """Delete the units' own records, once everything else lies in `folder`.

    They are not read: an earlier process may have died in the middle of this.
    """
    for place in folder.glob("unit-*"):
        shutil.rmtree(place)


def _read(place: Path) -> Unit:
    return from_mapping(Unit, read_json(place / UNIT), where=str(place / UNIT))
