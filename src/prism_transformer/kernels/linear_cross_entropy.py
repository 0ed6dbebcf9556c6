"""Cross-entropy of a linear head that never holds the [tokens, vocabulary] matrix of logits.

A few rows of logits at a time are made, turned into their loss and their gradients, and dropped. The gradients are
ready when the loss is, so the backward pass only scales them. With a small model the matrix is most of a step's memory.
On a CPU fetching it from the operating system and clearing it in every step takes longer than filling it; on a GPU the
softmax of each chunk is one compiled kernel, so that nothing of the matrix's size in fp32 goes through memory.

Shape suffixes: B batch, T positions, N rows (B*T), C rows of a chunk, D d_model, V rows of the weight.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import logit_rows


def linear_cross_entropy(
    hidden_BTD: Tensor, weight_VD: Tensor, labels_BT: Tensor, vocab_size: int | None = None
) -> Tensor:
    """Cross-entropy of `labels_BT` under softmax(hidden @ weight^T), in nats, summed; label -100 counts nothing.

    A drop-in for `PrismForCausalLM.loss_function_of_hidden`, equal to `sum_of_token_losses` up to rounding. Under
    autocast the products are taken in its dtype; softmax and sums stay in fp32. It can be differentiated once.
    """
    hidden_ND, labels_N = hidden_BTD.flatten(0, -2), labels_BT.flatten()
    total: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, labels_N, vocab_size or len(weight_VD), torch.is_grad_enabled()
    )
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, vocab_size: int, with_gradients: bool
    ) -> Tensor:
        device = hidden_ND.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
        x_ND, w_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
        total = torch.zeros((), device=hidden_ND.device)
        if with_gradients:
            hidden_gradient_ND = torch.empty_like(x_ND)
            weight_gradient_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        softmax = _compiled() if device == "cuda" else losses_and_gradients
        size = logit_rows(on_cpu=device == "cpu")
        for start in range(0, len(x_ND), size):
            rows = slice(start, start + size)
            x_CD, labels_C = x_ND[rows], labels_N[rows].clamp(min=0)
            scored_C = labels_N[rows] != -100
            losses_C, logits_gradient_CV = softmax(F.linear(x_CD, w_VD), labels_C, vocab_size)
            total += (losses_C * scored_C).sum()
            if with_gradients:
                scored_C1 = scored_C.unsqueeze(-1)
                hidden_gradient_ND[rows] = (logits_gradient_CV @ w_VD) * scored_C1
                _add_product(weight_gradient_VD, logits_gradient_CV.T, x_CD * scored_C1)
        if with_gradients:
            ctx.save_for_backward(hidden_gradient_ND.to(hidden_ND.dtype), weight_gradient_VD.to(weight_VD.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_gradient_ND, weight_gradient_VD = ctx.saved_tensors
        return hidden_gradient_ND * scale, weight_gradient_VD * scale, None, None, None


def losses_and_gradients(logits_CV: Tensor, labels_C: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """[C] logsumexp(logits) - logit of the label, and the gradient [C, V] of each by its logits, in their type.

    The largest logit tells logsumexp, since its p cannot underflow.
    """
    dtype, logits_CV = logits_CV.dtype, logits_CV.float()
    if vocab_size < logits_CV.shape[-1]:
        logits_CV[:, vocab_size:] = float("-inf")
    p_CV = logits_CV.softmax(dim=-1)
    logsumexp_C = logits_CV.amax(dim=-1) - p_CV.amax(dim=-1).log()
    losses_C = logsumexp_C - logits_CV.gather(1, labels_C.unsqueeze(-1)).squeeze(-1)
    p_CV[torch.arange(len(labels_C), device=labels_C.device), labels_C] -= 1
    return losses_C, p_CV.to(dtype)


def fusible_losses_and_gradients(logits_CV: Tensor, labels_C: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """The same without a step in place, so that a compiler makes one pass over the row for each of the two."""
    columns_V = torch.arange(logits_CV.shape[-1], device=logits_CV.device)
    x_CV = logits_CV.float().masked_fill(columns_V >= vocab_size, float("-inf"))
    logsumexp_C1 = x_CV.logsumexp(dim=-1, keepdim=True)
    losses_C = (logsumexp_C1 - x_CV.gather(1, labels_C.unsqueeze(-1))).squeeze(-1)
    is_label_CV = columns_V == labels_C.unsqueeze(-1)
    return losses_C, ((x_CV - logsumexp_C1).exp() - is_label_CV.float()).to(logits_CV.dtype)


@cache
def _compiled() -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    """On first use, which is on a GPU alone: the compiler takes seconds to import."""
    return torch.compile(fusible_losses_and_gradients, dynamic=False)


def _add_product(total_VD: Tensor, a_VC: Tensor, b_CD: Tensor) -> None:
    """total += a @ b, in fp32 also where the product is of a narrower type; without a temporary where it is not."""
    if a_VC.dtype == total_VD.dtype:
        total_VD.addmm_(a_VC, b_CD)
    else:
        total_VD += a_VC @ b_CD
