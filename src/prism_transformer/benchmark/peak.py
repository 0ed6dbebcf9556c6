"""How fast a device can be at most: the rate of its matrix products."""

from dataclasses import dataclass

import torch

from ..training.device import Device
from .timing import seconds_of

KNOWN: dict[str, dict[str, float]] = {
    "H200": {"bfloat16": 989e12, "float32": 495e12},
    "H100 PCIe": {"bfloat16": 756e12, "float32": 378e12},
    "H100 NVL": {"bfloat16": 835e12, "float32": 418e12},
    "H100": {"bfloat16": 989e12, "float32": 495e12},
    "A100": {"bfloat16": 312e12, "float32": 156e12},
    "A10": {"bfloat16": 125e12, "float32": 62.5e12},
    "A40": {"bfloat16": 150e12, "float32": 75e12},
    "L40S": {"bfloat16": 362e12, "float32": 183e12},
    "L4": {"bfloat16": 121e12, "float32": 60e12},
    "RTX 4090": {"bfloat16": 165e12, "float32": 82.6e12},
    "RTX 3090": {"bfloat16": 71e12, "float32": 35.6e12},
}
"""FLOP/s of dense products from the makers' data sheets; float32 with TF32 products, as training takes them there."""


@dataclass(frozen=True)
class Peak:
    """The most FLOP/s of a device, and where the figure is from."""

    flops: float
    source: str


def device_peak(device: Device) -> Peak | None:
    """Measured on a CPU, from the table of known devices on a GPU, None for one that is not in it."""
    dtype = str(device.dtype).removeprefix("torch.")
    if device.device.type == "cpu":
        return Peak(cpu_peak(device.dtype), f"a large {dtype} matrix product, measured")
    if device.device.type != "cuda":
        return None
    return known_peak(torch.cuda.get_device_name(device.device), dtype)


def known_peak(name: str, dtype: str) -> Peak | None:
    """From the table; the longest name in it that is part of the device's name, word by word."""
    words = f" {name.replace('-', ' ')} "
    fitting = [known for known in KNOWN if f" {known} " in words]
    if not fitting or dtype not in KNOWN[max(fitting, key=len)]:
        return None
    best = max(fitting, key=len)
    return Peak(KNOWN[best][dtype], f"the data sheet of {best}, {dtype}")


def cpu_peak(dtype: torch.dtype) -> float:
    """FLOP/s of the best of several measurements: other programs can only make one slower."""
    return max(product_rate(torch.device("cpu"), dtype, seconds=0.2) for _ in range(5))


def product_rate(device: torch.device, dtype: torch.dtype, *, size: int = 2048, seconds: float = 0.5) -> float:
    """FLOP/s of one large matrix product on the device."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def product() -> None:
        (left @ right)[0, 0].item()

    product()
    return 2 * size**3 / seconds_of(product, seconds)
