"""A folder that is written whole or not at all, by one process at a time."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from ..errors import InputError
from ..files import sync_file, sync_folder

_LOCK = ".lock"
_PARTIAL = ".partial"


@contextmanager
def claim(folder: Path, *, mark: str, resume: bool = False) -> Iterator[Path]:
    """Make the folder this process's own, others waiting, and give a fresh place in it for unfinished files.

    `mark` is the file that `publish` moves last. A process that dies leaves the place behind: the sign that what lies
    in the folder without the mark is ours to write again. With `resume` the place is as it was left, and stays after
    an error. Raises InputError for a folder that holds anything else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: a file, not a folder; choose another")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / _PARTIAL
    try:
        with FileLock(folder / _LOCK):
            if _has_files(folder) and not (folder / mark).exists() and not partial.exists():
                raise InputError(f"{folder}: holds files, but no prepared corpus; choose another folder")
            if not resume:
                shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True, exist_ok=True)
            try:
                yield partial
            finally:
                keeps = resume and any(partial.iterdir())
                if (folder / mark).exists() or not (keeps or _has_files(folder)):
                    shutil.rmtree(partial, ignore_errors=True)
    finally:
        _remove_if_bare(folder)


def publish(partial: Path, *, mark: str) -> None:
    """Flush all that lies in `partial` to the disk and move it to the folder above, `mark` last."""
    folder = partial.parent
    for path in (path for path in partial.rglob("*") if path.is_file()):
        sync_file(path)
    for path in sorted(partial.iterdir(), key=lambda path: (path.name == mark, path.name)):
        target = folder / path.name
        if target.is_dir():  # of an earlier process that died while publishing
            shutil.rmtree(target)
        path.replace(target)
    sync_folder(folder)


def _has_files(folder: Path) -> bool:
    return any(not path.name.startswith(".") for path in folder.iterdir())


def _remove_if_bare(folder: Path) -> None:
    """After a failure nothing is left but the lock: take that away too."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()
