import torch

from prism_transformer.benchmark.peak import KNOWN, device_peak, known_peak, product_rate
from prism_transformer.training.device import Device


def test_known_devices_by_their_names():
    assert known_peak("NVIDIA H200", "bfloat16").flops == 989e12
    assert known_peak("NVIDIA H100 80GB HBM3", "bfloat16").flops == 989e12
    assert known_peak("NVIDIA H100 PCIe", "bfloat16").flops == 756e12
    assert known_peak("NVIDIA A100-SXM4-80GB", "float32").flops == 156e12
    assert known_peak("NVIDIA GeForce RTX 4090", "bfloat16").flops == KNOWN["RTX 4090"]["bfloat16"]


def test_no_guess_for_others():
    assert known_peak("NVIDIA A100X", "bfloat16") is None
    assert known_peak("NVIDIA GeForce RTX 4080", "bfloat16") is None
    assert known_peak("NVIDIA H100", "float16") is None
    assert device_peak(Device(torch.device("mps"), torch.float32, ())) is None


def test_a_cpu_is_measured():
    found = device_peak(Device(torch.device("cpu"), torch.float32, ()))
    assert found.flops > 1e8 and "measured" in found.source
    assert product_rate(torch.device("cpu"), torch.float32, size=64, seconds=0.01) > 1e6
