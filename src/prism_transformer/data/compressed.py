"""Files opened for reading, decompressed by their suffix: .gz, .xz, .zst."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from prism_transformer.errors import InputError

BUFFER_BYTES = 2**20


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, decompressed. Raises InputError for what is missing, unreadable, damaged or cut short."""
    opener = OPENERS.get(path.suffix.lower())
    try:
        with path.open("rb") as raw:
            if opener is None:
                yield raw
            else:
                with io.BufferedReader(opener(raw), BUFFER_BYTES) as file:
                    yield file
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); is the file whole?") from None


class ZstdReader(io.RawIOBase):
    """The content of a .zst file of any number of frames; EOFError where the last one is cut short.

    zstandard's own stream_reader takes a truncated file for a shorter one.
    """

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw, self._zstandard = raw, zstandard
        self._frame: Any = None
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = (self._frame.unused_data if self._frame and self._frame.eof else b"") or self._raw.read(2**16)
            if not chunk:
                if self._frame and not self._frame.eof:
                    raise EOFError("compressed file ended before its end-of-stream mark")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._zstandard.ZstdDecompressor().decompressobj()
            try:
                self._ready = self._frame.decompress(chunk)
            except self._zstandard.ZstdError as error:
                raise OSError(str(error)) from None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".xz": lzma.LZMAFile,
    ".zst": ZstdReader,
}
