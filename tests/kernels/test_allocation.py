"""Freed memory is kept: taking it again faults no page."""

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
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is on Linux only")
def test_kept_memory_is_not_fetched_again():
    pages = 10 * 64_000_000 // 4096  # ten arrays of 64 MB: 156,250 pages of 4 kB, fewer where pages are huge
    assert page_faults("keep") < pages / 100
