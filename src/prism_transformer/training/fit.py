"""Whether a recipe fits a device, before it starts: bytes on each rank. Imports no torch.

Counted are weights, gradients and AdamW's moments in fp32, the activations of one micro-batch, and the logits. Under
FSDP2 a rank holds its share of these tensors, and gathered on top of them: embedding, head and norms, and two layers,
the one at work and the next. Gradients are averaged once a step, so with several micro-batches a step each rank
accumulates all of them, not a share.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ..cost import MOMENT_BYTES, WEIGHT_BYTES
from ..kernels import logit_rows as rows_of_logits
from ..model.head_schedule import divisors
from .recipe import Recipe, with_training
from .saving import checkpoint_bytes

Way = Literal["one", "ddp", "fsdp"]
USABLE = 0.9
"""Part of a device's memory that tensors can fill: the rest goes to the driver and to gaps between them."""
_MOST_RANKS = 4096


def choose_way(asked: Literal["auto", "ddp", "fsdp"], parameters: int, *, ranks: int, gpu_bytes: int | None) -> Way:
    """`asked`, or where that is auto the simplest that fits.

    That is DDP on CPUs (`gpu_bytes` None), and where weights, gradients and moments take less than half of a GPU.
    """
    if ranks == 1:
        return "one"
    if asked != "auto":
        return asked
    state_bytes = (2 * WEIGHT_BYTES + MOMENT_BYTES) * parameters
    return "ddp" if gpu_bytes is None or state_bytes < gpu_bytes / 2 else "fsdp"


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Estimated bytes of one training step on one rank."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def rank_memory(
    recipe: Recipe, vocab_size: int, *, way: Way, ranks: int, low: bool, logit_rows: int | None
) -> RankMemory:
    """`low`: products in bfloat16; `logit_rows`: of logits that the loss holds at a time, None: of a micro-batch."""
    micro_batch, model = recipe.training.micro_batch, recipe.model
    whole = model.memory(
        vocab_size,
        micro_batch=micro_batch,
        activation_bytes=2 if low else 4,
        recompute=recipe.device.recompute,
    )
    cost, shares = model.cost(vocab_size), ranks if way == "fsdp" else 1
    gathered, gradients = 0, whole.gradients
    if way == "fsdp":
        layers = sorted(layer.parameters for layer in cost.layers)
        gathered = 4 * cost.embedding_parameters + (2 if low else 4) * sum(layers[-2:])
        accumulates = recipe.accumulation(ranks) > 1
        gradients = whole.gradients if accumulates else whole.gradients // shares + 4 * sum(layers[-1:])
    rows = micro_batch * model.context
    logits = whole.logits
    if logit_rows is not None:
        logits = min(rows, logit_rows) * model.rows(vocab_size) * 8 + 4 * cost.embedding_parameters
    return RankMemory(
        weights=whole.weights // shares,
        gradients=gradients,
        optimizer=whole.optimizer // shares,
        gathered=gathered,
        activations=whole.activations,
        logits=logits,
    )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a rank needs beside what its device has."""

    ranks: int
    way: Way
    dtype: str
    memory: RankMemory
    device_bytes: int
    checkpoint_bytes: int
    remedy: str | None
    """What would make it fit; None where it fits."""

    @property
    def fits(self) -> bool:
        return self.memory.total <= USABLE * self.device_bytes


def fit(
    recipe: Recipe, vocab_size: int, *, ranks: int, device_bytes: int, on_cpu: bool, low: bool, in_chunks: bool = True
) -> Fit:
    """How `recipe` fits `ranks` devices of `device_bytes` each; `in_chunks`: see `kernels.choose.loss_is_in_chunks`."""
    at_a_time = rows_of_logits(on_cpu=on_cpu) if in_chunks else None

    def needed(recipe: Recipe, way: Way, ranks: int) -> RankMemory:
        return rank_memory(recipe, vocab_size, way=way, ranks=ranks, low=low, logit_rows=at_a_time)

    parameters = recipe.model.cost(vocab_size).parameters
    way = choose_way(recipe.device.parallel, parameters, ranks=ranks, gpu_bytes=None if on_cpu else device_bytes)
    memory, usable = needed(recipe, way, ranks), USABLE * device_bytes
    remedy = None
    if memory.total > usable:
        smaller = [size for size in divisors(recipe.batch_sequences // ranks) if size < recipe.training.micro_batch]
        fitting = [
            size for size in smaller if needed(with_training(recipe, micro_batch=size), way, ranks).total <= usable
        ]
        recomputed = replace(recipe, device=replace(recipe.device, recompute=True))
        if fitting:
            remedy = f"with micro_batch={max(fitting)} it does"
        elif needed(recomputed, way, ranks).total <= usable:
            remedy = "with --recompute it does"
        else:
            remedy = _sharded_remedy(recipe, needed, usable)
    return Fit(
        ranks=ranks,
        way=way,
        dtype="bfloat16" if low else "float32",
        memory=memory,
        device_bytes=device_bytes,
        checkpoint_bytes=checkpoint_bytes(recipe, vocab_size),
        remedy=remedy,
    )


def _sharded_remedy(recipe: Recipe, needed: Callable[[Recipe, Way, int], RankMemory], usable: float) -> str:
    """The fewest ranks, and the largest micro-batch on them, with which FSDP2 fits."""
    for ranks in divisors(recipe.batch_sequences):
        if 1 < ranks <= _MOST_RANKS:
            for size in sorted(divisors(recipe.batch_sequences // ranks), reverse=True):
                if needed(with_training(recipe, micro_batch=size), "fsdp", ranks).total <= usable:
                    return f"with parallel=fsdp on {ranks} devices and micro_batch={size} it does"
    return "no number of devices of this size fits it: shorten the context, or take larger devices"


def main_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
