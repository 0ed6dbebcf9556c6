"""Causal attention as plain matrix products over blocks of queries, which skip what no query of the block sees.

On CPUs with bfloat16 units the fused kernel runs far below the rate of the matrix products; here the products run at
it. Memory is linear in the context: the backward pass makes the weights of a block again.

Shape suffixes: B batch, H heads, T positions, K head dim; Q queries of a block, S the keys up to its end.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "prism_block_causal"
BLOCK = 128
"""Queries of a block. Small blocks skip more of what is masked, large ones run nearer to the rate of the products."""


def block_causal(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float) -> Tensor:
    """[B, H, T, K] softmax(q k^T scale) v, each position seeing itself and those before it. Differentiable once.

    Scores and weights are of the type of `q_BHTK`, under autocast of its type; softmax sums in fp32, as in the explicit
    path.
    """
    device = q_BHTK.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else q_BHTK.dtype
    q_BHTK, k_BHTK, v_BHTK = (x_BHTK.to(dtype) for x_BHTK in (q_BHTK, k_BHTK, v_BHTK))
    with torch.autocast(device, enabled=False):  # it would take softmax to fp32
        found: Tensor = _BlockCausal.apply(q_BHTK, k_BHTK, v_BHTK, scale)  # type: ignore[no-untyped-call]
    return found


def attention_forward(
    module: nn.Module,
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """`block_causal` where it is what the model asks for; with a mask, a cache or dropout, the fused kernel."""
    is_plain = attention_mask is None and q_BHTK.shape[2] == k_BHSK.shape[2] > 1 and dropout == 0.0
    if not is_plain or not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        other: tuple[Tensor, None] = sdpa_attention_forward(
            module, q_BHTK, k_BHSK, v_BHSK, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return other
    groups = getattr(module, "num_key_value_groups", 1)
    scale = q_BHTK.shape[-1] ** -0.5 if scaling is None else scaling
    y_BHTK = block_causal(q_BHTK, repeat_kv(k_BHSK, groups), repeat_kv(v_BHSK, groups), scale=scale)
    return y_BHTK.transpose(1, 2), None


# Without the mask function of its own name an attention function would ignore padding masks silently.
ALL_ATTENTION_FUNCTIONS.register(NAME, attention_forward)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _weights(q_BHQK: Tensor, k_BHSK: Tensor) -> Tensor:
    """[B, H, Q, S] of queries that are scaled already. The last Q of the S keys are the block's own: none is seen by
    an earlier query."""
    scores_BHQS = q_BHQK @ k_BHSK.transpose(2, 3)
    Q, S = scores_BHQS.shape[2:]
    later_QQ = torch.ones(Q, Q, dtype=torch.bool, device=scores_BHQS.device).triu_(1)
    scores_BHQS[..., S - Q :].masked_fill_(later_QQ, float("-inf"))
    return scores_BHQS.softmax(dim=-1)


class _BlockCausal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, scale: float) -> Tensor:
        B, H, T, K = q_BHTK.shape
        q_BHTK, k_BHTK, v_BHTK = (q_BHTK * scale).contiguous(), k_BHTK.contiguous(), v_BHTK.contiguous()
        # [B, T, H, K] in memory, as the projection after it wants.
        y_BHTK = q_BHTK.new_empty(B, T, H, K).transpose(1, 2)
        for rows in _blocks(T):
            seen = slice(0, rows.stop)
            y_BHTK[:, :, rows] = _weights(q_BHTK[:, :, rows], k_BHTK[:, :, seen]) @ v_BHTK[:, :, seen]
        ctx.save_for_backward(q_BHTK, k_BHTK, v_BHTK)
        ctx.scale = scale
        return y_BHTK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_BHTK: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q_BHTK, k_BHTK, v_BHTK = ctx.saved_tensors
        dy_BHTK = dy_BHTK.contiguous()
        dq_BHTK = torch.empty_like(q_BHTK)
        dk_BHTK, dv_BHTK = (
            torch.zeros(k_BHTK.shape, dtype=_sum_type(q_BHTK.dtype), device=q_BHTK.device) for _ in "kv"
        )
        for rows in _blocks(q_BHTK.shape[2]):
            seen = slice(0, rows.stop)
            q_BHQK, dy_BHQK, k_BHSK = q_BHTK[:, :, rows], dy_BHTK[:, :, rows], k_BHTK[:, :, seen]
            weights_BHQS = _weights(q_BHQK, k_BHSK)
            dv_BHTK[:, :, seen] += weights_BHQS.transpose(2, 3) @ dy_BHQK
            dweights_BHQS = dy_BHQK @ v_BHTK[:, :, seen].transpose(2, 3)
            dscores_BHQS = torch._softmax_backward_data(dweights_BHQS, weights_BHQS, -1, weights_BHQS.dtype)
            dq_BHTK[:, :, rows] = dscores_BHQS @ k_BHSK
            dk_BHTK[:, :, seen] += dscores_BHQS.transpose(2, 3) @ q_BHQK
        return dq_BHTK * ctx.scale, dk_BHTK.to(k_BHTK.dtype), dv_BHTK.to(v_BHTK.dtype), None


def _sum_type(dtype: torch.dtype) -> torch.dtype:
    """Sums over blocks are kept in fp32 at least."""
    return torch.promote_types(dtype, torch.float32)
