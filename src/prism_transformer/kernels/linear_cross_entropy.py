"""Cross-entropy of a linear head that never holds the [tokens, vocabulary] matrix of logits.

A few rows of logits at a time are made, turned into their loss and their gradients, and dropped. The gradients are
ready when the loss is, so the backward pass only scales them. With a small model the matrix is most of a step's memory,
and on a CPU fetching it from the operating system and clearing it in every step takes longer than filling it.

Shape suffixes: B batch, T positions, N rows (B*T), C rows of a chunk, D d_model, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import LOGIT_ROWS


def linear_cross_entropy(hidden_BTD: Tensor, weight_VD: Tensor, labels_BT: Tensor) -> Tensor:
    """Cross-entropy of `labels_BT` under softmax(hidden @ weight^T), in nats, summed; label -100 counts nothing.

    A drop-in for `PrismForCausalLM.loss_function_of_hidden`, equal to `sum_of_token_losses` up to rounding. Under
    autocast the products are taken in its dtype; softmax and sums stay in fp32. It can be differentiated once.
    """
    hidden_ND, labels_N = hidden_BTD.flatten(0, -2), labels_BT.flatten()
    total: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, labels_N, torch.is_grad_enabled()
    )
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, with_gradients: bool) -> Tensor:
        device = hidden_ND.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
        x_ND, w_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
        total = torch.zeros((), device=hidden_ND.device)
        if with_gradients:
            hidden_gradient_ND = torch.empty_like(x_ND)
            weight_gradient_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for start in range(0, len(x_ND), LOGIT_ROWS):
            rows = slice(start, start + LOGIT_ROWS)
            x_CD, labels_C = x_ND[rows], labels_N[rows].clamp(min=0)
            scored_C = labels_N[rows] != -100
            logits_CV = F.linear(x_CD, w_VD).float()
            p_CV = logits_CV.softmax(dim=-1)
            total += (_losses(logits_CV, p_CV, labels_C) * scored_C).sum()
            if with_gradients:
                p_CV[torch.arange(len(labels_C), device=labels_C.device), labels_C] -= 1
                logits_gradient_CV, scored_C1 = p_CV.to(dtype), scored_C.unsqueeze(-1)
                hidden_gradient_ND[rows] = (logits_gradient_CV @ w_VD) * scored_C1
                _add_product(weight_gradient_VD, logits_gradient_CV.T, x_CD * scored_C1)
        if with_gradients:
            ctx.save_for_backward(hidden_gradient_ND.to(hidden_ND.dtype), weight_gradient_VD.to(weight_VD.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden_gradient_ND, weight_gradient_VD = ctx.saved_tensors
        return hidden_gradient_ND * scale, weight_gradient_VD * scale, None, None


def _losses(logits_CV: Tensor, p_CV: Tensor, labels_C: Tensor) -> Tensor:
    """[C] logsumexp(logits) - logit of the label. The largest logit tells logsumexp, since its p cannot underflow."""
    logsumexp_C = logits_CV.amax(dim=-1) - p_CV.amax(dim=-1).log()
    return logsumexp_C - logits_CV.gather(1, labels_C.unsqueeze(-1)).squeeze(-1)


def _add_product(total_VD: Tensor, a_VC: Tensor, b_CD: Tensor) -> None:
    """total += a @ b, in fp32 also where the product is of a narrower type; without a temporary where it is not."""
    if a_VC.dtype == total_VD.dtype:
        total_VD.addmm_(a_VC, b_CD)
    else:
        total_VD += a_VC @ b_CD
