"""Writing so that a reader never sees half a file, whatever ends the process, and nothing of others is overwritten;
reading so that damage is noticed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import InputError

RECIPE, STUDY, SEARCH = "recipe.yaml", "study.yaml", "search.yaml"
"""The file that makes a folder a run, a study or a search."""
DATA = "data"
"""The text that was prepared in such a folder, for it alone."""
RESULTS = "results.json"
"""What a study or a search has shown so far."""


def size_text(n_bytes: float) -> str:
    """Bytes for people: "812 bytes", "2.8 MB", "2,300.0 GB"."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def free_bytes(path: Path) -> int:
    """Room on the volume where `path` is, or will be."""
    return shutil.disk_usage(next(place for place in (path, *path.absolute().parents) if place.exists())).free


def path_from(folder: Path, path: Path) -> str:
    """`path` as a file in `folder` names it: relative where it lies within, so that the folder may move."""
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def refuse_foreign(out: Path, *, mark: str, beside: tuple[str, ...] = ()) -> None:
    """Raise InputError for a folder without the file `mark` that holds anything but what `beside` names."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give a folder")
    if not out.is_dir() or (out / mark).exists():
        return
    others = sorted(path.name for path in out.iterdir() if path.name not in beside and not path.name.startswith("."))
    if others:
        raise InputError(f"{out} holds something else ({', '.join(others[:3])}); use a new folder")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all: to a temporary name beside it, to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises InputError where it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold an object, not {type(value).__name__}")
    return value


def checksums(paths: Iterable[Path]) -> dict[str, str]:
    """The sha256 of each file, by its name."""
    return {path.name: sha256(path) for path in paths}


def verify(folder: Path, sums: Mapping[str, str]) -> None:
    """Raise InputError naming every file of `sums` that is missing from `folder` or was changed since."""
    problems = []
    for name, stated in sums.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{path} is missing; restore it")
        elif sha256(path) != stated:
            problems.append(f"{path} was changed or damaged since it was saved (its sha256 differs); restore it")
    if problems:
        raise InputError(problems)


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the system can (Windows opens no folders)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def settle(folder: Path) -> None:
    """A new folder before it takes its name: every file on the disk, and as readable as the folder itself.

    safetensors leaves what it writes to its owner alone, who may not be the one that serves the model.
    """
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
            sync_file(path)
    sync_folder(folder)
