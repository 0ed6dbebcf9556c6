"""Files opened for reading, decompressed by their suffix: .gz, .xz, .zst."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError

_BUFFER_BYTES = 2**20


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, decompressed. Raises InputError for what is missing, unreadable, damaged or cut short."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    with raw:
        opener = OPENERS.get(path.suffix.lower())
        yield io.BufferedReader(_Decompressed(path, opener(raw)), _BUFFER_BYTES) if opener else raw


class _Decompressed(io.RawIOBase):
    """A decompressing stream that names its file when it fails, wherever it is being read by then."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream = path, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise InputError(f"{self._path}: cannot be read ({error}); is the file whole?") from None
        buffer[: len(data)] = data
        return len(data)


class _ZstdReader:
    """The content of a .zst file of any number of frames. zstandard's own reader takes a cut file for a shorter one."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw, self._zstandard = raw, zstandard
        self._frame: Any = None
        self._ready = io.BytesIO()

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises OSError where damaged, EOFError where cut short."""
        while not (data := self._ready.read(size)):
            chunk = (self._frame.unused_data if self._frame and self._frame.eof else b"") or self._raw.read(2**16)
            if not chunk:
                if self._frame and not self._frame.eof:
                    raise EOFError("it ends inside a frame")
                return b""
            if self._frame is None or self._frame.eof:
                self._frame = self._zstandard.ZstdDecompressor().decompressobj()
            try:
                self._ready = io.BytesIO(self._frame.decompress(chunk))
            except self._zstandard.ZstdError as error:
                raise OSError(str(error)) from None
        return data


OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".xz": lzma.LZMAFile,
    ".zst": _ZstdReader,
}
