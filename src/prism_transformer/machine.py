"""This machine, as far as the standard library knows it."""

import os
import platform
from pathlib import Path


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_warnings(threads: int | None) -> list[str]:
    """A sentence where more threads are asked for than there are cores."""
    cores = available_cores()
    if threads is None or threads <= cores:
        return []
    return [f"warning: threads={threads} is more than the {cores} cores here; they will wait for each other"]


def processor() -> str:
    """The processor's name and its cores, in words."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()
