"""Freed memory is kept: taking it again faults no page."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from prism_transformer.kernels.allocation import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(8_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def page_faults(mode):
    plain = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"}  # NumPy asks for pages of 2 MB, which hide the faults
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True, env=plain)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is on Linux only")
def test_kept_memory_is_not_fetched_again():
    """Ten arrays of 64 MB are 156,250 pages of 4 kB, or 305 where the system makes all pages huge."""
    kept, given_back = page_faults("keep"), page_faults("give back")
    assert given_back > 200
    assert kept < given_back / 50
