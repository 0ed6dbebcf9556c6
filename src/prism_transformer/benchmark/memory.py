"""The most memory that one training step takes: of the device, or of a process that does nothing else."""

import gc
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from ..kernels.allocation import keep_freed_memory
from ..training.device import choose_device
from ..training.recipe import Recipe
from .workloads import build_model, training


def peak_memory(recipe: Recipe, *, vocab_size: int) -> int | None:
    """Bytes: on a GPU those of tensors, on a CPU the resident set of a fresh process that trains two steps; None where
    the system does not count it."""
    device = choose_device(recipe.device)
    if device.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device.device)
        before = torch.cuda.memory_allocated(device.device)
        _two_steps(recipe, vocab_size)
        return int(torch.cuda.max_memory_allocated(device.device) - before)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_of_this_process, recipe, vocab_size, torch.get_num_threads()).result()


def _two_steps(recipe: Recipe, vocab_size: int) -> None:
    device = choose_device(recipe.device)
    step = training(build_model(recipe, device, vocab_size=vocab_size), recipe, device).run
    step()
    step()


def _of_this_process(recipe: Recipe, vocab_size: int, threads: int) -> int | None:
    keep_freed_memory()
    torch.set_num_threads(threads)
    _two_steps(recipe, vocab_size)
    return resident_peak()


def resident_peak() -> int | None:
    """Bytes: the largest resident set of this process so far; None where the system does not count it."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what this process was before it became this program
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
