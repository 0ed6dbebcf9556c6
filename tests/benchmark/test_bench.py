"""A benchmark of a tiny model: what it counts is known, whatever the seconds are."""

from dataclasses import replace

import pytest
import torch

from prism_transformer.benchmark import bench as module
from prism_transformer.benchmark.attention import time_kernels
from prism_transformer.benchmark.bench import bench
from prism_transformer.benchmark.memory import peak_memory, resident_peak
from prism_transformer.benchmark.picture import draw
from prism_transformer.benchmark.settings import BenchSettings
from prism_transformer.benchmark.workloads import build_model, decode, prefill, training
from prism_transformer.training.device import Device, choose_device
from prism_transformer.training.recipe import ModelSettings, Recipe, TrainingSettings, with_model

V, T, D, L = 61, 16, 16, 2
RECIPE = Recipe(
    model=ModelSettings(layers=L, d_model=D, heads=4, context=T),
    training=TrainingSettings(tokens=4096, tokens_per_step=2 * T, micro_batch=2),
)
MATRICES = L * 2 * (4 * D * D + 3 * D * (8 * D // 3))
HEAD = 2 * V * D


@pytest.fixture(scope="module")
def device() -> Device:
    return choose_device(RECIPE.device)


def test_tokens_and_flops_of_a_call(device):
    """2 FLOPs a weight and token, 4 T d a layer for attention, thrice for training; the head where it is needed."""
    model = build_model(RECIPE, device, vocab_size=V)
    step = training(model, RECIPE, device)
    assert step.tokens == 2 * T and step.flops == 3 * step.tokens * (MATRICES + HEAD + L * 4 * T * D)
    read = prefill(model, RECIPE, device)
    assert read.tokens == T and read.flops == T * (MATRICES + L * 4 * T * D) + HEAD
    write = decode(model, RECIPE, device)
    assert write.tokens == T - 1 and write.flops == (T - 1) * (MATRICES + HEAD + L * 4 * (T - (T - 1) // 2) * D)


def test_a_training_step_trains_and_the_others_do_not(device):
    model = build_model(RECIPE, device, vocab_size=V)
    before = model.lm_head.weight.detach().clone()
    for work in (prefill, decode):
        run = work(model, RECIPE, device).run
        run()
        run()
    assert torch.equal(model.lm_head.weight, before) and model.training
    training(model, RECIPE, device).run()
    assert not torch.equal(model.lm_head.weight, before)


def test_decoding_writes_what_generate_writes(device, monkeypatch):
    """The same tokens at every repetition, so that the cache is set back each time."""
    model = build_model(RECIPE, device, vocab_size=V)
    seen = []
    forward = model.forward

    def noted(*args, **options):
        out = forward(*args, **options)
        seen.append((args[0] if args else options["input_ids"], out.logits[:, -1].argmax(-1).item()))
        return out

    monkeypatch.setattr(model, "forward", noted)
    run = decode(model, RECIPE, device).run
    prompt, first = seen.pop()
    for _ in range(2):
        seen.clear()
        run()
        written = [first, *(token for _, token in seen)]
        monkeypatch.setattr(model, "forward", forward)
        whole = model.generate(prompt, max_new_tokens=T - 1, do_sample=False, eos_token_id=None, pad_token_id=0)
        monkeypatch.setattr(model, "forward", noted)
        assert written[: T - 1] == whole[0, 1:].tolist()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    arms = {"uniform": RECIPE, "wide": with_model(RECIPE, schedule="1,4")}
    return bench(arms, BenchSettings(rounds=3, turn_seconds=1e-4, memory=False), vocab_size=V)


def test_what_a_benchmark_finds(found):
    assert found["baseline"] == "uniform" and found["unfair"] == {} and found["peak"]["flops"] > 0
    for name, heads in (("uniform", [4, 4]), ("wide", [1, 4])):
        entry = found["arms"][name]
        assert entry["heads_per_layer"] == heads
        assert entry["kernels"] == {work: ["flash", "flash"] for work in ("training", "prefill", "decode")}
        for work in ("training", "prefill", "decode"):
            timed = entry[work]
            assert len(timed["seconds"]) == 3
            share = timed["flops_per_second"] / found["peak"]["flops"]
            assert timed["share_of_peak"] == pytest.approx(share)
    ratio = found["ratios"]["wide"]["prefill"]
    assert ratio["low"] <= ratio["ratio"] <= ratio["high"]


@pytest.mark.parametrize("work", [prefill, decode])
def test_the_model_that_is_looked_at_is_the_one_that_runs(work):
    """In bfloat16 too, for which its weights are cast: a copy would run where nobody looks."""
    recipe = replace(RECIPE, device=replace(RECIPE.device, dtype="bfloat16"))
    device = choose_device(recipe.device)
    model, called = build_model(recipe, device, vocab_size=V), []
    run = work(model, recipe, device).run
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(lambda *_: called.append(1))
    run()
    assert called and model.dtype == torch.bfloat16


def test_no_share_of_an_unknown_peak_and_another_kernel_is_unfair(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "device_peak", lambda device: None)
    kernels = iter([["flash", "flash"], ["flash", "plain, not fused"]])
    monkeypatch.setattr(module, "attention_kernels", lambda model, run: next(kernels))
    arms = {"uniform": RECIPE, "wide": with_model(RECIPE, schedule="1,4")}
    settings = BenchSettings(work=("prefill",), rounds=3, turn_seconds=1e-4, memory=False)
    result = bench(arms, settings, vocab_size=V)
    assert result["peak"] is None and result["arms"]["wide"]["prefill"]["share_of_peak"] is None
    assert "other attention kernels" in result["unfair"]["wide"][0]
    assert "unfair" in draw(result, tmp_path)[0].read_text()


def test_graphs_are_counted_by_arm(monkeypatch):
    """One for uniform, two for two head counts: as expected, so fair."""

    def compile_quickly(model, sharded):
        for layer in model.model.layers:
            layer.compile(backend="eager")

    monkeypatch.setattr(module, "compile_layers", compile_quickly)
    recipe = replace(RECIPE, device=replace(RECIPE.device, compile=True))
    arms = {"uniform": recipe, "wide": with_model(recipe, schedule="1,4")}
    settings = BenchSettings(work=("training",), rounds=3, turn_seconds=1e-4, memory=False)
    result = bench(arms, settings, vocab_size=V)
    assert [result["arms"][name]["compiled"]["graphs"] for name in arms] == [1, 2]
    assert result["unfair"] == {} and result["arms"]["wide"]["kernels"]["training"] == ["flash", "flash"]


def test_the_picture(found, tmp_path):
    svg, png = draw(found, tmp_path)
    text = svg.read_text()
    assert "training: speed relative to uniform" in text and "tokens/s" in text and "unfair" not in text
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_single_arm_is_drawn_by_its_share_of_peak(tmp_path):
    settings = BenchSettings(work=("prefill",), rounds=3, turn_seconds=1e-4, memory=False)
    found = bench({"uniform": RECIPE}, settings, vocab_size=V)
    assert found["ratios"] == {}
    assert "share of the device" in draw(found, tmp_path)[0].read_text()


@pytest.mark.slow
def test_memory_of_a_step_is_that_of_a_process_with_weights_gradients_and_moments():
    """Weights, gradients and two moments in fp32, 16 bytes a parameter, and Python with torch: some 0.2 to 0.6 GB."""
    large = replace(RECIPE, model=replace(RECIPE.model, d_model=1024, heads=4, layers=4))
    own = 16 * large.model.cost(V).parameters
    assert own + 0.1e9 < peak_memory(large, vocab_size=V) < own + 1.2e9
    assert resident_peak() > 50e6


def test_attention_alone(device):
    rows = time_kernels(
        d_model=D, head_dims=(4, 8), contexts=(8,), batch=1, device=device, peak=1e9, rounds=3, turn_seconds=1e-4
    )
    assert [(row["head_dim"], row["heads"], row["kernel"]) for row in rows] == [
        (dim, D // dim, kernel) for dim in (4, 8) for kernel in ("flash", "block-causal")
    ]
    first = rows[0]
    assert first["forward_share_of_peak"] == pytest.approx(2 * 8 * 8 * D / first["forward_seconds"] / 1e9)
    whole = first["forward_seconds"] + first["backward_seconds"]
    share = pytest.approx(7 * 8 * 8 * D / whole / 1e9)
    assert first["both_share_of_peak"] == share or first["backward_seconds"] == 0  # where noise is longer than it
