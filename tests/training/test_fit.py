"""Whether a recipe fits a device: by hand-computed bytes."""

from dataclasses import replace

import pytest

from prism_transformer.training.fit import choose_way, fit, rank_memory
from prism_transformer.training.recipe import DeviceSettings, ModelSettings, Recipe, TrainingSettings, with_training
from prism_transformer.training.recipe_files import load_recipe

GIB = 2**30
LARGE = Recipe(
    model=ModelSettings(layers=24, d_model=1536, heads=16, schedule="prism"),
    training=TrainingSettings(tokens=2**30, tokens_per_step=2**19, micro_batch=16),
    device=DeviceSettings(),
)
VOCAB = 50257
PARAMETERS = 756.8e6  # the paper's large model
LAYER = 4 * 1536**2 + 3 * 1536 * 4096 + 2 * 1536
REST = VOCAB * 1536 + 1536


def test_one_device_holds_16_bytes_a_parameter_and_the_activations():
    found = rank_memory(LARGE, VOCAB, way="one", ranks=1, low=True, logit_rows=8192)
    assert found.weights + found.gradients + found.optimizer == pytest.approx(16 * PARAMETERS, rel=1e-3)
    tokens, heads = 16 * 1024, 3 * 6 + 3 * 12 + 18 * 16
    assert found.activations == tokens * (24 * (10 * 1536 + 4 * 4096) * 2 + 4 * heads + 3 * 1536 * 2)
    assert found.logits == 8192 * VOCAB * 8 + 4 * REST  # of some rows at a time, and a gradient of the head
    whole = rank_memory(LARGE, VOCAB, way="one", ranks=1, low=True, logit_rows=None)
    assert whole.logits == tokens * VOCAB * 10
    assert found.gathered == 0


def test_ddp_holds_on_each_what_one_device_holds():
    alone = rank_memory(LARGE, VOCAB, way="one", ranks=1, low=True, logit_rows=8192)
    assert rank_memory(LARGE, VOCAB, way="ddp", ranks=8, low=True, logit_rows=8192) == alone


def test_fsdp_shares_weights_and_moments_and_gathers_two_layers_and_the_rest():
    found = rank_memory(LARGE, VOCAB, way="fsdp", ranks=8, low=True, logit_rows=8192)
    whole = 24 * LAYER + REST
    assert (found.weights, found.optimizer) == (4 * whole // 8, 8 * whole // 8)
    assert found.gathered == 4 * REST + 2 * 2 * LAYER
    assert found.gradients == 4 * whole  # 512 sequences are 4 micro-batches of 16 on 8 ranks: all are accumulated
    at_once = replace(LARGE, training=replace(LARGE.training, micro_batch=64))
    found = rank_memory(at_once, VOCAB, way="fsdp", ranks=8, low=True, logit_rows=8192)
    assert found.gradients == 4 * whole // 8 + 4 * LAYER


def test_the_loss_of_the_cpu_holds_a_chunk_of_logits_and_a_gradient_of_the_head():
    found = rank_memory(LARGE, VOCAB, way="one", ranks=1, low=False, logit_rows=512)
    assert found.logits == 512 * VOCAB * 8 + 4 * REST


def test_it_fits_or_says_what_would():
    large = fit(LARGE, VOCAB, ranks=8, device_bytes=80 * GIB, on_cpu=False, low=True)
    assert large.fits and large.remedy is None and large.way == "ddp"
    small = fit(LARGE, VOCAB, ranks=8, device_bytes=24 * GIB, on_cpu=False, low=True)
    assert not small.fits and small.way == "ddp"  # 12.1 GB of weights, gradients and moments are less than half of it
    assert small.remedy == "with micro_batch=4 it does"
    fitting = replace(LARGE, training=replace(LARGE.training, micro_batch=4))
    assert fit(fitting, VOCAB, ranks=8, device_bytes=24 * GIB, on_cpu=False, low=True).fits
    smaller = fit(LARGE, VOCAB, ranks=8, device_bytes=20 * GIB, on_cpu=False, low=True)
    assert not smaller.fits and smaller.way == "fsdp"


def test_where_no_micro_batch_fits_recomputing_is_named_where_it_does():
    """Of one sequence at 124M in fp32, 12 layers of activations are 678 MB more than one layer and 12 inputs."""
    recipe = with_training(load_recipe("small").recipe, micro_batch=1)
    sizes = {"ranks": 1, "on_cpu": True, "low": False}
    whole = fit(recipe, 50_257, device_bytes=10**12, **sizes).memory.total
    tight = fit(recipe, 50_257, device_bytes=int((whole - 500e6) / 0.9), **sizes)
    assert not tight.fits and tight.remedy == "with --recompute it does"
    recomputed = replace(recipe, device=replace(recipe.device, recompute=True))
    assert fit(recomputed, 50_257, device_bytes=int((whole - 500e6) / 0.9), **sizes).fits


def test_where_no_micro_batch_fits_more_devices_are_named_with_which_it_does():
    found = fit(LARGE, VOCAB, ranks=1, device_bytes=8 * GIB, on_cpu=False, low=True)
    assert found.remedy is not None and found.remedy.startswith("with parallel=fsdp on ")
    words = found.remedy.split()
    ranks, micro_batch = int(words[3]), int(words[6].removeprefix("micro_batch="))
    changed = replace(
        LARGE,
        training=replace(LARGE.training, micro_batch=micro_batch),
        device=replace(LARGE.device, parallel="fsdp"),
    )
    changed.check(ranks)
    assert fit(changed, VOCAB, ranks=ranks, device_bytes=8 * GIB, on_cpu=False, low=True).fits


def test_a_device_that_is_too_small_for_anything_is_said():
    found = fit(LARGE, VOCAB, ranks=1, device_bytes=GIB // 8, on_cpu=False, low=True)
    assert found.remedy is not None and found.remedy.startswith("no number of devices of this size fits it")


def test_what_was_asked_for_is_taken():
    for asked in ("ddp", "fsdp"):
        recipe = replace(LARGE, device=DeviceSettings(parallel=asked))
        assert fit(recipe, VOCAB, ranks=2, device_bytes=80 * GIB, on_cpu=False, low=True).way == asked
        assert fit(recipe, VOCAB, ranks=1, device_bytes=80 * GIB, on_cpu=False, low=True).way == "one"


@pytest.mark.parametrize(
    ("asked", "ranks", "gpu_bytes", "way"),
    [
        ("fsdp", 1, 80, "one"),
        ("fsdp", 2, None, "fsdp"),
        ("ddp", 2, 1, "ddp"),
        ("auto", 2, None, "ddp"),  # on CPUs
        ("auto", 2, 2 * 16 * 1000 + 1, "ddp"),  # 1000 parameters: 16,000 bytes are just under half of it
        ("auto", 2, 2 * 16 * 1000, "fsdp"),
    ],
)
def test_the_simplest_way_that_fits_is_chosen(asked, ranks, gpu_bytes, way):
    assert choose_way(asked, 1000, ranks=ranks, gpu_bytes=gpu_bytes) == way
