"""Device, precision and threads: chosen with a reason, refused with a remedy."""

import pytest
import torch

from prism_transformer.errors import InputError
from prism_transformer.machine import available_cores
from prism_transformer.training import device as module
from prism_transformer.training.device import choose_device, torch_settings_kept
from prism_transformer.training.recipe import DeviceSettings


@pytest.fixture(autouse=True)
def kept():
    with torch_settings_kept():
        yield


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_cuda_asked_for_and_absent_is_refused(name):
    with pytest.raises(
        InputError, match=rf"^device={name} is not here: .* sees 0 CUDA devices; choose another, or auto"
    ):
        choose_device(DeviceSettings(device=name))


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_those_here_is_refused():
    found = choose_device(DeviceSettings(device="cuda:1", dtype="float32"))
    assert found.device == torch.device("cuda:1")
    assert found.sentences == ("device cuda:1, float32: as asked; its matrix products are rounded to TF32",)
    with pytest.raises(InputError, match=r"device=cuda:2 is not here: .* sees 2 CUDA devices"):
        choose_device(DeviceSettings(device="cuda:2"))


@pytest.mark.usefixtures("no_gpu")
def test_mps_asked_for_and_absent_is_refused():
    with pytest.raises(InputError, match="device=mps is not here"):
        choose_device(DeviceSettings(device="mps"))


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "meta", "cpu cpu", "tpu"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(InputError, match=r"choose auto, cpu, cuda, cuda:N or mps"):
        choose_device(DeviceSettings(device=name))


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_nothing_else():
    assert choose_device(DeviceSettings()).device == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_auto_is_cuda_where_it_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    found = choose_device(DeviceSettings())
    assert (found.device.type, found.dtype) == ("cuda", torch.bfloat16)
    assert found.sentences == ("device cuda, bfloat16: the GPU computes in bfloat16",)


@pytest.mark.usefixtures("two_gpus")
def test_an_old_gpu_computes_in_float32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    found = choose_device(DeviceSettings())
    assert found.dtype == torch.float32
    assert "no bfloat16 units" in found.sentences[0]


@pytest.mark.parametrize(
    ("has_units", "dtype", "reason"),
    [(True, torch.bfloat16, "the CPU computes in bfloat16"), (False, torch.float32, "the CPU has no bfloat16 units")],
)
def test_the_cpu_computes_in_bfloat16_where_it_has_the_units(monkeypatch, has_units, dtype, reason):
    monkeypatch.setattr(module, "cpu_computes_bfloat16", lambda: has_units)
    found = choose_device(DeviceSettings(device="cpu"))
    assert found.dtype == dtype
    assert reason in found.sentences[0]


def test_the_capabilities_of_the_cpu_are_known_or_none(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "amx_bf16": True}, raising=False)
    assert module.cpu_computes_bfloat16()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "amx_bf16": False}, raising=False)
    assert not module.cpu_computes_bfloat16()
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not module.cpu_computes_bfloat16()


@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_precision_asked_for_is_taken(name, dtype):
    found = choose_device(DeviceSettings(device="cpu", dtype=name))
    assert found.dtype == dtype
    assert found.sentences[0] == f"device cpu, {name}: as asked"
    with found.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == dtype


def test_threads_are_set_and_more_than_the_cores_are_warned_of():
    assert choose_device(DeviceSettings(device="cpu", threads=1)).sentences[1:] == ()
    assert torch.get_num_threads() == 1
    too_many = available_cores() + 1
    (warning,) = choose_device(DeviceSettings(device="cpu", threads=too_many)).sentences[1:]
    assert warning.startswith(f"warning: threads={too_many} is more than the {available_cores()} cores here")
    assert torch.get_num_threads() == too_many


def test_threads_and_precision_are_set_back():
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    with torch_settings_kept():
        torch.set_num_threads(threads + 1)
        torch.set_float32_matmul_precision("medium")
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (threads, precision)
