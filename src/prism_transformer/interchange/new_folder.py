"""A folder that appears whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ..errors import InputError, RunError
from ..files import settle, sync_folder


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder beside `folder`, which takes its name at the end. Raises InputError where it is taken."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} exists already; nothing is overwritten: choose another folder")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        settle(temporary)
        if folder.exists():
            folder.rmdir()
        temporary.rename(folder)
        sync_folder(folder.parent)
    except SafetensorError as error:  # what the library makes of a full disk
        raise RunError(f"{folder} was not written: {error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
