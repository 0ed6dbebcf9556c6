"""Sources: which files the paths of the settings mean."""

import glob
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import InputError
from ..files import RECIPE, SEARCH, STUDY, sha256
from .corpus import is_prepared
from .manifest import SourceInfo
from .reading import STDIN_SUFFIX, Document, Tally, is_binary, read_documents


class Sources(Protocol):
    """Where text comes from. `documents` may be read several times and gives the same each time."""

    @property
    def origin(self) -> str:
        """In words, for people."""

    @property
    def files(self) -> int:
        """How many are read."""

    @property
    def hidden(self) -> int:
        """How many were passed over, in folders, because their name starts with a dot."""

    @property
    def binary(self) -> int:
        """How many were passed over, in folders, because they are no text."""

    def identity(self, known: Mapping[str, SourceInfo]) -> tuple[SourceInfo, ...]:
        """What tells unchanged sources from changed ones. A file of `known` size and date is not hashed again."""

    def documents(self, tally: Tally) -> Iterator[Document]:
        """Every document, in a fixed order."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files, in the order of the settings' paths, those of a folder sorted."""

    paths: tuple[Path, ...]
    text_field: str
    hidden: int = 0
    binary: int = 0
    spooled: Path | None = None
    """Where standard input was saved, so that it can be read again."""

    @property
    def files(self) -> int:
        return len(self.paths)

    @property
    def origin(self) -> str:
        if len(self.paths) == 1:
            return "standard input" if self.paths[0] == self.spooled else self.paths[0].name
        return f"{len(self.paths):,} files"

    def identity(self, known: Mapping[str, SourceInfo]) -> tuple[SourceInfo, ...]:
        return tuple(self._info(path, known) for path in self.paths)

    def documents(self, tally: Tally) -> Iterator[Document]:
        problems: list[str] = []
        for path in self.paths:
            try:
                yield from read_documents(path, text_field=self.text_field, tally=tally)
            except InputError as error:
                problems += error.problems
        if problems:
            more = [f"and {len(problems) - 20} more files with faults"] if len(problems) > 20 else []
            raise InputError([*problems[:20], *more])

    def _info(self, path: Path, known: Mapping[str, SourceInfo]) -> SourceInfo:
        name = "-" if path == self.spooled else str(path)
        stat, before = path.stat(), known.get(name)
        if before and path != self.spooled and (before.size, before.modified_ns) == (stat.st_size, stat.st_mtime_ns):
            return before
        return SourceInfo(name=name, size=stat.st_size, modified_ns=stat.st_mtime_ns, sha256=sha256(path))


def find_files(paths: Sequence[str], *, text_field: str, spool: Path) -> Files:
    """The files that the paths mean; "-" is read to its end into the folder `spool`.

    Raises InputError with every path that is missing, empty, binary, or a folder or pattern without text.
    """
    found: dict[Path, Path] = {}
    problems: list[str] = []
    hidden, binary, spooled = 0, 0, None
    for path in paths:
        try:
            if path == "-":
                spooled = _save_stdin(spool)
                files = [spooled]
            else:
                files, more_hidden, more_binary = _expand(path)
                hidden, binary = hidden + more_hidden, binary + more_binary
            for file in files:
                found.setdefault(file.resolve(), file)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return Files(paths=tuple(found.values()), text_field=text_field, hidden=hidden, binary=binary, spooled=spooled)


def _expand(given: str) -> tuple[list[Path], int, int]:
    """The files of one path or glob, and how many hidden and binary ones were passed over."""
    if not given:
        raise InputError("one of the paths is empty text; name a file, a folder, or . for this folder")
    path = Path(given).expanduser()
    if path.is_dir():
        if is_prepared(path):
            raise InputError(f"{path}: already prepared, so it cannot be read together with other text; give it alone")
        return _with_text(given, *_walk(path))
    if path.is_file():
        return [_text_file(path)], 0, 0
    if path.exists():
        raise InputError(f"{path}: no regular file; pipe it to standard input, and give - as the path")
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 (absolute too)
    if not matches:
        kind = "no file matches" if glob.has_magic(given) else "no such file or folder"
        raise InputError(f"{given}: {kind}")
    files: list[Path] = []
    hidden = 0
    for match in (match for match in matches if not _is_own(match)):
        inside, more = _walk(match) if match.is_dir() else ([match], 0)
        files, hidden = files + inside, hidden + more
    return _with_text(given, files, hidden)


def _text_file(path: Path) -> Path:
    """A file that was named outright: it is not passed over in silence."""
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    if is_binary(path):
        raise InputError(f"{path}: a binary file (it holds NUL bytes); give text, in UTF-8")
    return path


def _with_text(given: str, files: list[Path], hidden: int) -> tuple[list[Path], int, int]:
    text = [file for file in files if not is_binary(file)]
    if not text:
        raise InputError(f"{given}: no text in it ({hidden} hidden and {len(files)} binary files passed over)")
    return text, hidden, len(files) - len(text)


def _walk(root: Path) -> tuple[list[Path], int]:
    """All regular files below a folder, sorted, and the number of hidden ones; what this package makes left out."""
    files: list[Path] = []
    hidden = 0
    for folder, names, children in os.walk(root):
        here = Path(folder)
        if here != root and _is_own(here):
            names.clear()
            continue
        visible = [name for name in children if not name.startswith(".")]
        hidden += len(children) - len(visible) + sum(name.startswith(".") for name in names)
        names[:] = sorted(name for name in names if not name.startswith("."))
        files += [here / name for name in sorted(visible) if (here / name).is_file()]
    return files, hidden


def _is_own(folder: Path) -> bool:
    """Whether this is a corpus, a study, a run or a search, which may lie among the texts."""
    return is_prepared(folder) or any((folder / mark).exists() for mark in (RECIPE, STUDY, SEARCH))


def _save_stdin(spool: Path) -> Path:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("-: standard input is a terminal; pipe text into the command")
    path = spool / f"standard-input{STDIN_SUFFIX}"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if path.stat().st_size == 0 or is_binary(path):
        raise InputError("-: standard input is empty or no text; pipe text, in UTF-8, into the command")
    return path
