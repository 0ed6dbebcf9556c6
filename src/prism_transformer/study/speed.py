"""How fast this machine trains a recipe, from a few steps on random tokens."""

import gc
from dataclasses import replace

import torch

from ..benchmark.peak import product_rate
from ..benchmark.timing import seconds_of, waiting
from ..benchmark.workloads import build_model
from ..training.build import compile_layers, compiles
from ..training.device import choose_device
from ..training.optimizer import make_optimizer
from ..training.recipe import DeviceSettings, Recipe
from .estimate import Speed

MOST_TOKENS = 8192
"""of one measured forward and backward pass: larger ones run no faster on a CPU, and take their time"""

LONGEST_PASS = 5.0
"""Seconds of one such pass at the device's own rate. A model of which one sequence takes longer is not built here: it
may not fit the memory, and nobody will train it on this device."""


def training_speed(recipe: Recipe, vocab_size: int, *, seconds: float = 3.0) -> Speed:
    """The speed of training by `recipe` in one process, measured for about `seconds`.

    A micro-batch is timed by itself, and an optimizer step by itself; a step is its micro-batches and one update. Of a
    model far too large for the device it is the rate of its matrix products alone, which no training there exceeds.
    """
    try:
        return _measured_speed(recipe, vocab_size, seconds)
    finally:
        if torch.cuda.is_initialized():  # the runs need the memory, and a compiled module refers to itself
            gc.collect()
            torch.cuda.empty_cache()


def _measured_speed(recipe: Recipe, vocab_size: int, seconds: float) -> Speed:
    fastest = matrix_peak(recipe.device) / (3 * recipe.model.cost(vocab_size).matmul_flops_per_token)
    if recipe.model.context > fastest * LONGEST_PASS:
        return Speed(fastest, "from the matrix products alone")
    most = min(MOST_TOKENS, int(fastest * LONGEST_PASS))
    sequences = min(recipe.training.micro_batch, max(1, most // recipe.model.context))
    device = choose_device(recipe.device)
    wait = waiting(device)
    model = build_model(recipe, device, vocab_size=vocab_size)
    optimizer = make_optimizer(model, recipe.optimizer)
    shape = (sequences, recipe.model.context + 1)
    ids = torch.randint(vocab_size, shape, device=device.device)

    def micro_batch() -> None:
        with device.autocast():
            loss = model(ids[:, :-1], shift_labels=ids[:, 1:], use_cache=False).loss
        loss.backward()
        loss.item()

    def update() -> None:
        optimizer.step()
        wait()

    if compiles(recipe.device, device) and device.device.type == "cuda":  # a CPU compiles for longer than this may take
        compile_layers(model, sharded=False)
        micro_batch()
    micro_batch()
    update()
    per_token = seconds_of(micro_batch, seconds) / (sequences * recipe.model.context)
    per_update = seconds_of(update, seconds / 4)
    return Speed(1 / (per_token + per_update / recipe.training.tokens_per_step), "measured here")


def matrix_peak(settings: DeviceSettings) -> float:
    """FLOP/s of one large matrix product on the device: no training there can be faster."""
    device = choose_device(replace(settings, threads=None))
    return product_rate(device.device, device.dtype, size=8192 if device.device.type == "cuda" else 2048)
