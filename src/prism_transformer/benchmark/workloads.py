"""What is timed: the training step, prefill and decode of one model, on random tokens.

Nothing here depends on what the tokens are: no data, no tokenizer and no trained weights are needed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn
from transformers import StaticCache

from ..kernels.choose import use_fast_generation
from ..model.modeling_prism import PrismForCausalLM
from ..training.build import make_ready
from ..training.device import Device
from ..training.optimizer import make_optimizer
from ..training.recipe import Recipe
from .settings import Work

DECODED = 16
"""Tokens of one decode call, at the end of the context."""


@dataclass(frozen=True)
class Workload:
    """One call of `run` handles `tokens` tokens with `flops` multiplications and additions in matrix products."""

    tokens: int
    flops: float
    run: Callable[[], object]


def build_model(recipe: Recipe, device: Device, *, vocab_size: int) -> PrismForCausalLM:
    """The model of `recipe` on `device` with the paths that training takes there; one seed for every schedule."""
    with torch.random.fork_rng(devices=[]), torch.device(device.device):  # where drawing the weights is fast
        torch.manual_seed(0)
        model = PrismForCausalLM(recipe.model.config(vocab_size))
    make_ready(model, recipe.device, device)
    return model


def training(model: PrismForCausalLM, recipe: Recipe, device: Device) -> Workload:
    """An optimizer step of one micro-batch: forward, loss, backward, clipping, AdamW."""
    context, sequences = recipe.model.context, recipe.training.micro_batch
    vocab_size = _vocabulary(model)
    optimizer = make_optimizer(model, recipe.optimizer)
    ids = torch.randint(vocab_size, (sequences, context + 1), device=device.device)

    def step() -> None:
        with device.autocast():
            loss = model(ids[:, :-1], shift_labels=ids[:, 1:], num_items_in_batch=ids[:, 1:].numel(), use_cache=False)
        loss.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip or torch.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    tokens = sequences * context
    return Workload(tokens, 3.0 * recipe.model.cost(vocab_size).matmul_flops_per_token * tokens, step)


def prefill(model: PrismForCausalLM, recipe: Recipe, device: Device) -> Workload:
    """Reading a prompt of the whole context into an empty cache, up to the logits of the next token; batch 1."""
    context = recipe.model.context
    ids = torch.randint(_vocabulary(model), (1, context), device=device.device)
    cache = StaticCache(config=model.config, max_cache_len=context)
    _as_used(model, device)

    def read() -> None:
        cache.reset()
        with _inference(model):
            model(ids, cache=cache, use_cache=True, logits_to_keep=1)

    cost = recipe.model.cost(_vocabulary(model))
    of_layers = cost.matmul_flops_per_token - cost.head_flops_per_token
    return Workload(context, float(of_layers * context + cost.head_flops_per_token), read)


def decode(model: PrismForCausalLM, recipe: Recipe, device: Device) -> Workload:
    """Writing the last tokens of the context one by one, greedily, from a static cache; batch 1."""
    context = recipe.model.context
    count = min(DECODED, context - 1)
    ids = torch.randint(_vocabulary(model), (1, context - count), device=device.device)
    cache = StaticCache(config=model.config, max_cache_len=context)
    _as_used(model, device)
    with _inference(model):
        first = model(ids, cache=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)

    def write() -> None:
        token = first
        with _inference(model):
            for _ in range(count):
                token = model(token, cache=cache, use_cache=True).logits.argmax(-1)
        cache.crop(-count)

    seen = replace(recipe.model, context=context - count // 2)
    cost = seen.cost(_vocabulary(model))
    return Workload(count, float(cost.matmul_flops_per_token * count), write)


BUILDERS: dict[Work, Callable[[PrismForCausalLM, Recipe, Device], Workload]] = {
    "training": training,
    "prefill": prefill,
    "decode": decode,
}


def _vocabulary(model: PrismForCausalLM) -> int:
    return int(model.config.true_vocab_size or model.config.vocab_size)


@contextmanager
def _inference(model: PrismForCausalLM) -> Iterator[None]:
    was_training = model.training
    model.train(False)
    with torch.no_grad():
        yield
    model.train(was_training)


def _as_used(model: PrismForCausalLM, device: Device) -> None:
    """Bring the weights, in place, to where `prism generate` has them: nothing is cast at each token.

    In place, since whoever looks at `model` while the workload runs must see what runs.
    """
    nn.Module.to(model, device.dtype)
    use_fast_generation(model, device.device, device.dtype)
