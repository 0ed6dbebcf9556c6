"""Attention alone, forward and backward, by head dim and context, in every kernel that is here."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.block_causal import block_causal
from ..training.device import Device
from .inspection import PLAIN, FusedKernels
from .timing import interleave, repeats_of, turn_of, waiting

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def time_kernels(
    *,
    d_model: int,
    head_dims: Sequence[int],
    contexts: Sequence[int],
    batch: int,
    device: Device,
    peak: float | None,
    rounds: int = 5,
    turn_seconds: float = 0.1,
    say: Callable[[str], None] = lambda sentence: None,
) -> list[dict[str, Any]]:
    """A row for each head dim, context and kernel: {"head_dim", "context", "kernel", "forward_seconds", …}.

    FLOPs are those of the causal half: 2 products forward and 5 backward (one of them made again), T² d_model / 2
    multiplications each. All kernels of a shape take turns.
    """
    rows = []
    for context in contexts:
        for head_dim in head_dims:
            say(f"attention of head dim {head_dim}, context {context}")
            rows += _shape(d_model, head_dim, context, batch, device, peak, rounds, turn_seconds)
    return rows


def _shape(
    d_model: int,
    head_dim: int,
    context: int,
    batch: int,
    device: Device,
    peak: float | None,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    shape = (batch, context, d_model // head_dim, head_dim)
    q, k, v, dy = (torch.randn(shape, device=device.device, dtype=device.dtype).transpose(1, 2) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    wait = waiting(device)
    kernels = attention_functions(q, k, v)
    forward = [turn_of(lambda f=f: _forward(f, q, k, v), wait=wait) for f in kernels.values()]  # type: ignore[misc]
    both = [turn_of(lambda f=f: torch.autograd.grad(f(q, k, v), leaves, dy), wait=wait) for f in kernels.values()]  # type: ignore[misc]
    times = {}
    for name, turns in (("forward", forward), ("both", both)):
        times[name] = np.median(interleave(turns, rounds=rounds, repeats=repeats_of(turns, seconds=seconds)), axis=1)
    product = float(batch * context**2 * d_model)  # of the causal half: T²/2 pairs, 2 FLOPs each
    rows = []
    for index, name in enumerate(kernels):
        ahead, whole = float(times["forward"][index]), float(times["both"][index])
        rows.append(
            {
                "head_dim": head_dim,
                "heads": d_model // head_dim,
                "context": context,
                "batch": batch,
                "kernel": name,
                "forward_seconds": ahead,
                "backward_seconds": max(0.0, whole - ahead),
                "forward_share_of_peak": 2 * product / ahead / peak if peak else None,
                "both_share_of_peak": 7 * product / whole / peak if peak else None,
            }
        )
    return rows


def _forward(attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.no_grad():
        return attend(q, k, v)


def attention_functions(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Attend]:
    """Ways to causal attention: what torch chooses, by its name; on CUDA every other fused kernel that takes the shape;
    block-causal products."""
    found: dict[str, Attend] = {_chosen(q, k, v): _fused} if _runs(_fused, q, k, v) else {}
    if q.device.type == "cuda":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        names = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
        for name, backend in (names | {"memory-efficient": SDPBackend.EFFICIENT_ATTENTION}).items():

            def only(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend = backend) -> Tensor:
                with sdpa_kernel(backend):
                    return _fused(q, k, v)

            if name not in found and _runs(only, q, k, v):
                found[name] = only
    found["block-causal"] = lambda q, k, v: block_causal(q, k, v, scale=q.shape[-1] ** -0.5)
    return found


def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _runs(attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> bool:
    try:
        attend(q, k, v).sum().backward()
    except RuntimeError:  # torch says in so many warnings why the kernel does not take the shape
        return False
    return True


def _chosen(q: Tensor, k: Tensor, v: Tensor) -> str:
    """The kernel that torch takes by itself."""
    log = FusedKernels(layer=0)
    with log:
        _fused(q, k, v)
    return log.found.get(0, PLAIN)
