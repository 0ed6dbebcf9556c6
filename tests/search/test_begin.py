"""What a search fixes at its beginning."""

import pytest
import torch

from prism_transformer.search import begin
from prism_transformer.search.settings import SearchSettings
from prism_transformer.training import device as device_module
from prism_transformer.training.device import Device
from prism_transformer.training.recipe import DeviceSettings


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((8, 0), "cuda"),  # A100
        ((8, 6), "cuda-consumer"),  # GeForce 30
        ((8, 9), "cuda-consumer"),  # GeForce 40
        ((9, 0), "cuda"),  # H100
        ((10, 0), "cuda"),  # B200
        ((12, 0), "cuda-consumer"),  # GeForce 50
    ],
)
def test_the_limits_that_count_are_those_of_the_gpu_it_runs_on(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], target: str
) -> None:
    """FlashAttention's backward pass is limited to narrower heads on 8.6 to 8.9 and 12.x."""
    gpu = Device(torch.device("cuda"), torch.bfloat16, ())
    monkeypatch.setattr(device_module, "choose_device", lambda settings: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert begin._target(SearchSettings(), DeviceSettings()) == target
    assert begin._target(SearchSettings(target="cpu"), DeviceSettings()) == "cpu"
