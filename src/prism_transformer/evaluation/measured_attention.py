"""How far back attention looks: equation 1 of the paper (section 5), and its entropy, in memory linear in the context.

The fused kernel never shows its weights A, but it gives their product with any values: with the positions as values,
sum_s A[t,s] s, so the distance; with the keys as values, E[k], and from it the entropy of the weights,
H_t = lse_t - q_t·E[k] scale, where lse_t = q_t·k_0 scale - log A[t,0] and A[t,0] is one more column of values.

Shape suffixes as in the model: B batch, T positions, H heads, K head dim; R rows of one head.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..data import TokenStream
from ..errors import DivergedError, InputError

Documents = Literal["packed", "apart"]
FUNCTION = "prism_measured_attention"
_SMALLEST_ANCHOR = 1e-30
"""A share of position 0 from which its logarithm is still exact; below it the log-sum-exp is taken row by row."""
_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class LayerAttention:
    """One layer, by head; means over the counted queries."""

    distance: tuple[float, ...]
    """Tokens: sum_s A (t - s)."""
    sink_share: tuple[float, ...]
    """Share of the attention that falls on position 0."""
    distance_beyond_sink: tuple[float, ...]
    """Tokens: the distance of the attention that falls elsewhere."""
    entropy: tuple[float, ...]
    """Nats: -sum_s A log A."""

    def mean(self, name: str) -> float:
        """The mean over heads; `mean("distance")` is the paper's D_l."""
        values: tuple[float, ...] = getattr(self, name)
        return sum(values) / len(values)


@dataclass(frozen=True, kw_only=True)
class AttentionStatistics:
    """Every layer of one model, the first one first."""

    layers: tuple[LayerAttention, ...]
    context: int
    sequences: int
    queries: int
    """Counted query positions of all sequences: those of the last half of each window."""
    documents: Documents


class Piece(NamedTuple):
    """Tokens that are seen together: a window, or the part of one document in it."""

    ids: npt.NDArray[np.int64]
    offset: int
    """Of the first one in the window."""


def spread_windows(stream: TokenStream, *, context: int, sequences: int) -> list[int]:
    """The starts of `sequences` windows of `context` tokens, evenly over the stream, without overlap."""
    available = len(stream) // context
    if available < 1:
        raise InputError(
            f"{stream.where}: {len(stream):,} tokens, but a window takes {context:,}; "
            "give more text, or a shorter --context"
        )
    count = min(sequences, available)
    return [context * (k * available // count) for k in range(count)]


def cut_windows(stream: TokenStream, starts: Sequence[int], *, context: int, documents: Documents) -> list[list[Piece]]:
    """Each window as one piece, or as the parts of its documents, which then do not see each other."""
    windows = []
    for start in starts:
        ids = stream.read(start, context)
        inside = stream.document_starts[(stream.document_starts > start) & (stream.document_starts < start + context)]
        cuts = [0, *(int(at) - start for at in inside), context] if documents == "apart" else [0, context]
        windows.append([Piece(ids[a:b], a) for a, b in pairwise(cuts)])
    return windows


@torch.no_grad()
def measure_attention(
    model: PreTrainedModel,
    stream: TokenStream,
    *,
    context: int,
    sequences: int = 8,
    documents: Documents = "packed",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> AttentionStatistics:
    """Measure every layer of `model` on windows of `stream`; queries are those of the last half of each window.

    "packed" windows are what the model was trained on; "apart", a token sees its own document only. The model may be
    any whose attention goes through transformers' attention interface. Raises InputError where it does not, and for
    too little text; DivergedError for numbers that are not finite.
    """
    starts = spread_windows(stream, context=context, sequences=sequences)
    windows = cut_windows(stream, starts, context=context, documents=documents)
    # Pieces after the middle are counted whole, those before it not at all: they need not be looked at.
    pieces = [piece for window in windows for piece in window if piece.offset + len(piece.ids) > context // 2]
    sums: dict[int, _Sums] = {}
    with _measured(model):
        for piece in pieces:
            first_counted = max(0, context // 2 - piece.offset)
            input_BT = torch.from_numpy(piece.ids).to(model.device)[None]
            model.base_model(input_BT, use_cache=False, attention_sums=sums, first_counted=first_counted)
            on_progress(min(len(windows), sum(s.sequences for s in list(sums.values())[:1])), len(windows))
    if len(sums) != (count := model.config.num_hidden_layers):
        raise InputError(
            f"{type(model).__name__}: {len(sums)} of {count} layers pass through transformers' attention interface, so "
            "its attention cannot be measured"
        )
    layers = tuple(sums[layer].means() for layer in sorted(sums))
    if not all(math.isfinite(value) for layer in layers for value in (*layer.distance, *layer.entropy)):
        raise DivergedError(f"{type(model).__name__}: its attention is not finite; the model has diverged")
    queries = sums[min(sums)].queries
    return AttentionStatistics(
        layers=layers, context=context, sequences=len(windows), queries=queries, documents=documents
    )


class _Sums:
    """Sums over the counted queries of one layer, [H] in fp64."""

    def __init__(self, heads: int) -> None:
        zeros = torch.zeros(4, heads, dtype=torch.float64)
        self.distance, self.sink, self.sink_distance, self.entropy = zeros
        self.queries = self.sequences = 0

    def add(self, measured: tuple[Tensor, Tensor, Tensor], *, first: int) -> None:
        """Take [B, H, T] each of distance, sink share and entropy, of the queries from `first` on."""
        distance_BHT, sink_BHT, entropy_BHT = (each.double()[:, :, first:] for each in measured)
        position_T = torch.arange(first, first + distance_BHT.shape[2], device=distance_BHT.device)
        for total, values_BHT in (
            (self.distance, distance_BHT),
            (self.sink, sink_BHT),
            (self.sink_distance, sink_BHT * position_T),
            (self.entropy, entropy_BHT),
        ):
            total += values_BHT.sum(dim=(0, 2)).cpu()
        self.queries += distance_BHT.shape[0] * distance_BHT.shape[2]
        self.sequences += distance_BHT.shape[0]

    def means(self) -> LayerAttention:
        elsewhere = (self.queries - self.sink).clamp_min(1e-12)
        beyond = (self.distance - self.sink_distance) / elsewhere
        return LayerAttention(
            distance=tuple((self.distance / self.queries).tolist()),
            sink_share=tuple((self.sink / self.queries).tolist()),
            distance_beyond_sink=tuple(beyond.tolist()),
            entropy=tuple((self.entropy / self.queries).tolist()),
        )


@contextmanager
def _measured(model: PreTrainedModel) -> Iterator[None]:
    """Send the attention of `model`, not in training, through `_attend_and_measure`, and set all back afterwards.

    Distances to a thousandth of a token need whole fp32 products on a GPU too.
    """
    before, was_training = model.config._attn_implementation, model.training
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        model.train(False)
        model.set_attn_implementation(FUNCTION)
        yield
    finally:
        model.set_attn_implementation(before)
        model.train(was_training)
        torch.set_float32_matmul_precision(precision)


def _attend_and_measure(
    module: nn.Module,
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTK: Tensor,
    attention_mask: Tensor | None,
    *,
    attention_sums: dict[int, _Sums],
    first_counted: int,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as the model asks for it, measured on the way into `attention_sums`, by layer."""
    keys_BHTK = repeat_kv(k_BHTK, getattr(module, "num_key_value_groups", 1))
    scale = q_BHTK.shape[-1] ** -0.5 if scaling is None else scaling
    measured = _statistics(q_BHTK.float(), keys_BHTK.float(), attention_mask, scale)
    sums = attention_sums.setdefault(int(module.layer_idx), _Sums(q_BHTK.shape[1]))  # type: ignore[arg-type]
    sums.add(measured, first=first_counted)
    output: tuple[Tensor, None] = sdpa_attention_forward(
        module, q_BHTK, k_BHTK, v_BHTK, attention_mask, scaling=scaling, **kwargs
    )
    return output


# Without the mask function of its own name an attention function would ignore padding masks silently.
ALL_ATTENTION_FUNCTIONS.register(FUNCTION, _attend_and_measure)
ALL_MASK_ATTENTION_FUNCTIONS.register(FUNCTION, sdpa_mask)


def _statistics(q_BHTK: Tensor, k_BHTK: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """[B, H, T] each: distance in tokens, share of position 0, entropy in nats."""
    T = q_BHTK.shape[2]
    middle = T // 2
    position_T = torch.arange(T, device=q_BHTK.device, dtype=torch.float32)
    values_TK = torch.zeros(T, q_BHTK.shape[3], device=q_BHTK.device)  # as wide as the keys: what fused kernels want
    values_TK[:, 0] = position_T - middle  # around zero, where fp32 is finest
    values_TK[0, 1] = 1.0

    def expected(v_BHTK: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q_BHTK, k_BHTK, v_BHTK, attn_mask=mask, is_causal=mask is None, scale=scale
        )

    columns_BHTK = expected(values_TK.expand_as(k_BHTK))
    distance_BHT = position_T - middle - columns_BHTK[..., 0]
    sink_BHT = columns_BHTK[..., 1]
    lse_BHT = _log_sum_exp(q_BHTK, k_BHTK, mask, scale, sink_BHT)
    entropy_BHT = lse_BHT - scale * (q_BHTK * expected(k_BHTK)).sum(dim=-1)
    return distance_BHT, sink_BHT, entropy_BHT.clamp_min(0.0)


def _log_sum_exp(q_BHTK: Tensor, k_BHTK: Tensor, mask: Tensor | None, scale: float, sink_BHT: Tensor) -> Tensor:
    """[B, H, T] the logarithm of the softmax's denominator, from the score and the share of position 0.

    Where the share is too small for its logarithm, or position 0 is masked, the scores themselves are summed.
    """
    score_BHT = scale * (q_BHTK * k_BHTK[:, :, :1]).sum(dim=-1)
    lse_BHT = score_BHT - sink_BHT.clamp_min(_SMALLEST_ANCHOR).log()
    for b, h in (sink_BHT < _SMALLEST_ANCHOR).any(dim=-1).nonzero().tolist():
        rows_R = (sink_BHT[b, h] < _SMALLEST_ANCHOR).nonzero()[:, 0]
        for part_R in rows_R.split(_ROWS):
            scores_RT = scale * q_BHTK[b, h, part_R] @ k_BHTK[b, h].T
            if mask is None:
                hidden_RT = torch.arange(k_BHTK.shape[2], device=part_R.device) > part_R[:, None]
            else:
                full_TT = mask[b % mask.shape[0], h % mask.shape[1]]
                hidden_RT = ~full_TT[part_R] if mask.dtype == torch.bool else full_TT[part_R] < -1e30
            lse_BHT[b, h, part_R] = scores_RT.masked_fill(hidden_RT, float("-inf")).logsumexp(dim=-1)
    return lse_BHT
