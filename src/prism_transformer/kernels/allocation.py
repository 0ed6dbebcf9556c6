"""Memory that the process keeps.

glibc gives large blocks back to the system as soon as they are freed and fetches them anew, cleared page by page, in
every training step. Keeping them costs nothing but the memory of the largest step.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed, for the whole process; False where the C library is another."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl has no mallopt
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_M_TOP_PAD, 64 * 2**20))
