"""A model as one ONNX graph with KV cache: for a prompt (empty cache) and for one token after another.

Inputs: input_ids [B, T], attention_mask [B, S + T] and, for each layer, past_key_values.L.key and .value [B, H, S, K].
Outputs: logits [B, T, V] and the grown cache, present.L.key and .value [B, H, S + T, K]. H and K differ by layer. The
names are those that onnxruntime's users know from Hugging Face's exports; prompts are padded on the left.
"""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from ..model.modeling_prism import PrismForCausalLM


class _Cache:
    """Keys and values before this call, and with those of it."""

    def __init__(self, past: list[Tensor]) -> None:
        self.past = past
        self.present: list[Tensor] = []

    def update(self, k_BHTK: Tensor, v_BHTK: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.past[2 * layer :], (k_BHTK, v_BHTK), strict=False))
        self.present += [key, value]
        return key, value


class _Step(nn.Module):
    """The forward pass with the cache as tensors, going in and coming out."""

    def __init__(self, model: PrismForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        body, (_, n_tokens), n_keys = self.model.model, input_ids.shape, attention_mask.shape[1]
        position_BS = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        position_BT = position_BS[:, n_keys - n_tokens :]
        order_S = torch.arange(n_keys, device=input_ids.device)
        order_T = order_S[n_keys - n_tokens :]
        seen_BTS = (order_S[None, None, :] <= order_T[None, :, None]) & attention_mask[:, None, :].bool()
        x_BTD = body.embed_tokens(input_ids)
        mask_B1TS = torch.where(seen_BTS, 0.0, torch.finfo(x_BTD.dtype).min)[:, None]
        tables = {head_dim: rotary(position_BT, x_BTD.dtype) for head_dim, rotary in body.rotary_emb.items()}
        cache = _Cache(past)
        for layer, head_dim in zip(body.layers, body.head_dims, strict=True):
            x_BTD = layer(x_BTD, *tables[str(head_dim)], mask_B1TS, cache=cache)
        return self.model.mask_padding_rows(self.model.lm_head(body.norm(x_BTD))), cache.present


def write_onnx(model: PrismForCausalLM, path: Path) -> None:
    """Write the graph to `path` and its weights, in fp32, beside it. `model` is left as it is."""
    step = _Step(copy.deepcopy(model))
    nn.Module.to(step, "cpu", torch.float32)
    step.model.set_attn_implementation("eager")
    step.eval()
    batch, tokens, seen = 2, 3, 4  # no size is 0 or 1, which would be taken for a constant
    schedule = model.config.head_schedule
    past = [
        torch.zeros(batch, heads, seen, head_dim)
        for heads, head_dim in zip(schedule.heads, schedule.head_dims, strict=True)
        for _ in ("key", "value")
    ]
    ids = torch.zeros(batch, tokens, dtype=torch.long)
    names = [f"{layer}.{kind}" for layer in range(schedule.n_layers) for kind in ("key", "value")]
    dynamic = torch.export.Dim.DYNAMIC
    with torch.no_grad(), _quiet():
        torch.onnx.export(
            step,
            (ids, torch.ones(batch, seen + tokens, dtype=torch.long), past),
            path,
            input_names=["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in names)],
            output_names=["logits", *(f"present.{name}" for name in names)],
            dynamic_shapes=(
                {0: dynamic, 1: dynamic},
                {0: dynamic, 1: dynamic},
                [{0: dynamic, 2: dynamic} for _ in past],
            ),
            dynamo=True,
            external_data=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's words about its own deprecations, and about torchvision, which has no part in this."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
