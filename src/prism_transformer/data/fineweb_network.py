"""What both ways to FineWeb share: the size of what is asked for, room for it, and patience with the network."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import InputError, RunError
from ..files import free_bytes, size_text

MOST_FAILURES = 8
"""in a row, with waits of 1, 2, 4 … 64 seconds between them: two minutes"""

_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_tokens(text: str) -> int:
    """2.9B -> 2,900,000,000. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:[_,]\d+)*(?:\.\d+)?)\s*([KMBT]?)", text.strip().upper())
    count = round(float(re.sub("[_,]", "", found[1])) * _FACTORS[found[2]]) if found else 0
    if count < 1:
        raise InputError(f"tokens={text!r} is no count of tokens; write it like 2.9B, 500M or 2900000000")
    return count


def require_room(folder: Path, needed: int) -> str:
    """A sentence about the disk. Raises InputError where `folder`'s volume has less than `needed` bytes free."""
    free = free_bytes(folder)
    if free < needed:
        raise InputError(
            f"{folder}: {size_text(needed)} are needed, and its disk has {size_text(free)} free; "
            f"ask for fewer tokens, or use another disk"
        )
    return f"disk: {size_text(needed)} needed in {folder}, {size_text(free)} free"


class Patience:
    """Counts failures in a row, and waits longer after each."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._failures = say, 0

    def worked(self) -> None:
        self._failures = 0

    def failed(self, what: str, error: Exception) -> None:
        """Wait before the next attempt. Raises RunError where there were too many."""
        self._failures += 1
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        if self._failures >= MOST_FAILURES:
            raise RunError(
                f"{what} failed {MOST_FAILURES} times in a row ({reason}); what was finished is kept: "
                f"the same command goes on"
            ) from error
        wait = 2.0 ** (self._failures - 1)
        self._say(f"{what} failed ({reason}); trying again in {wait:.0f} s")
        time.sleep(wait)
