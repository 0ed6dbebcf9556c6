"""Where a run computes and in which precision: chosen once, with the reason in words."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..errors import InputError
from ..machine import thread_warnings
from .recipe import DeviceSettings


@dataclass(frozen=True)
class Device:
    """A torch device and the type of its matrix products; weights and optimizer state stay in fp32."""

    device: torch.device
    dtype: torch.dtype
    sentences: tuple[str, ...]

    def autocast(self) -> AbstractContextManager[object]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def send(self, ids: npt.NDArray[np.int64]) -> torch.Tensor:
        """To the device; on a GPU from pinned memory, so that the copy runs while it computes."""
        tensor = torch.from_numpy(ids)
        return (tensor.pin_memory() if self.device.type == "cuda" else tensor).to(self.device, non_blocking=True)

    def memory(self) -> int | None:
        """Bytes of a GPU's memory; None elsewhere."""
        if self.device.type != "cuda":
            return None
        size: int = torch.cuda.get_device_properties(self.device).total_memory
        return size


def choose_device(settings: DeviceSettings, *, local_rank: int | None = None) -> Device:
    """Resolve `settings` on this machine, and set torch's threads. Raises InputError for a device that is not here.

    With `local_rank`, among several processes of this machine, each takes a GPU of its own.
    """
    device = _device(settings.device)
    if local_rank is not None and device.type == "cuda":
        device = _device(f"cuda:{local_rank}")
    elif local_rank is not None and device.type == "mps":
        device = torch.device("cpu")
    dtype, reason = _dtype(device, settings.dtype)
    sentences = [f"device {device}, {str(dtype).removeprefix('torch.')}: {reason}"]
    if device.type == "cpu":
        sentences += _set_threads(settings.threads)
    elif device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return Device(device, dtype, tuple(sentences))


@contextmanager
def torch_settings_kept() -> Iterator[None]:
    """Set threads and matrix precision back afterwards: the next run in this process starts from torch's own."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


def _device(name: str) -> torch.device:
    if name == "auto":
        has_mps = torch.backends.mps.is_available()
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device={name!r} is not known; choose auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device={name} is not here: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices; "
            "choose another, or auto"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device=mps is not here: it needs a Mac with Apple silicon; choose cpu or auto")
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device={name!r} is not supported; choose auto, cpu, cuda, cuda:N or mps")
    return device


def _dtype(device: torch.device, name: str) -> tuple[torch.dtype, str]:
    if name != "auto":
        rounding = "; its matrix products are rounded to TF32" if (device.type, name) == ("cuda", "float32") else ""
        return getattr(torch, name), f"as asked{rounding}"
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16, "the GPU computes in bfloat16"
        return torch.float32, "the GPU has no bfloat16 units, and float16 would need a loss scale"
    if device.type == "cpu":
        if cpu_computes_bfloat16():
            return torch.bfloat16, "the CPU computes in bfloat16"
        return torch.float32, "the CPU has no bfloat16 units; it would run many times slower there"
    return torch.float32, "bfloat16 is not uniformly supported on mps"


def cpu_computes_bfloat16() -> bool:
    """Whether the CPU has bfloat16 units (AVX-512 BF16 or AMX on x86, BF16 on ARM)."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _set_threads(threads: int | None) -> list[str]:
    if threads is None:
        return []
    torch.set_num_threads(threads)
    return thread_warnings(threads)
