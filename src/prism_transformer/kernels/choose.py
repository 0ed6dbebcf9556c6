"""Which of the faster ways a device gets: a fixed rule, so that a run that goes on computes as it did before."""

import torch
from torch import nn
from torch.utils._triton import has_triton

from ..model.modeling_prism import PrismForCausalLM
from . import block_causal
from .linear_cross_entropy import linear_cross_entropy
from .single_row import lay_out_for_single_rows


def loss_is_in_chunks(device: torch.device) -> bool:
    """Whether a model that trains on `device` makes its logits some rows at a time."""
    return device.type == "cpu" or (device.type == "cuda" and has_triton())


def use_fast_paths(model: PrismForCausalLM, device: torch.device, dtype: torch.dtype) -> None:
    """Give `model` what is faster on `device` with products of `dtype`; elsewhere it keeps the plain paths.

    On a CPU the loss in chunks of rows, measured faster in fp32; on a GPU too where torch.compile has a back end, which
    makes one kernel of a chunk's softmax. Block-causal attention on a CPU with bfloat16 alone: in fp32 the fused kernel
    is faster.
    """
    if loss_is_in_chunks(device):
        model.loss_function_of_hidden = linear_cross_entropy
    if device.type == "cpu" and dtype == torch.bfloat16:
        model.set_attn_implementation(block_causal.NAME)


LAYOUT_PAYS = 100
"""Tokens, written one by one, with which a CPU wins back the time of laying the weights out. Measured at 124M; both
grow with the weights."""


def use_fast_generation(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Give any `model` that is to write text, and not to be trained, what makes single tokens faster on `device`.

    On a CPU in fp32 the layout of its weights: 1.1 to 1.2 times as fast at 124M, for .6 s once, which
    LAYOUT_PAYS tokens bring in. In bfloat16 that layout has no fast product there.
    """
    if device.type == "cpu" and dtype == torch.float32:
        lay_out_for_single_rows(model)
