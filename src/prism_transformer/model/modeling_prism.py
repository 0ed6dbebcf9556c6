"""The Prism Transformer: a Llama-style decoder whose number of heads changes from layer to layer.

Every projection stays [d_model, d_model]; a head schedule only decides how its output is cut into heads. A uniform
schedule is exactly a Llama: same module names, same logits.

Shape suffixes: B batch, T query positions, S key positions, D d_model, H heads of the layer, K head dim of the layer
(H*K = D in every layer; H and K differ between layers), R rotated dims of a head, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_prism import PrismConfig

# transformers 5.24 renamed `past_key_values` to `cache`, in outputs and in the mask function alike.
_CACHE = "cache" if "cache" in {f.name for f in dataclasses.fields(BaseModelOutputWithPast)} else "past_key_values"


def sum_of_token_losses(
    hidden_BTD: Tensor, weight_VD: Tensor, labels_BT: Tensor, vocab_size: int | None = None
) -> Tensor:
    """Cross-entropy of `labels_BT` under softmax(hidden @ weight^T), summed; label -100 counts nothing.

    Rows of the weight from `vocab_size` on only pad it to a shape that a GPU multiplies fast, and take no part.
    """
    return _sum_of_cross_entropies(F.linear(hidden_BTD, weight_VD)[..., :vocab_size], labels_BT)


def _sum_of_cross_entropies(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.flatten(0, -2).float(), labels_BT.flatten(), ignore_index=-100, reduction="sum")


class PrismRotaryEmbedding(nn.Module):
    """The tables of RoPE for H heads of K dimensions, of which R are rotated; a module for each distinct K."""

    def __init__(self, n_heads: int, head_dim: int, rotary_dim: int, theta: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.head_dim = head_dim
        self.rotary_dim = rotary_dim
        self.theta = theta
        self.inv_freq: Tensor
        self.register_buffer("inv_freq", self.frequencies(), persistent=False)

    def frequencies(self) -> Tensor:
        """The R/2 angular frequencies theta^(-2i/R), in radians a token."""
        exponents = torch.arange(0, self.rotary_dim, 2, dtype=torch.float32) / self.rotary_dim
        return 1.0 / self.theta**exponents

    def forward(self, position_ids_BT: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [B, T, D] for `rotate`: sin is negative in the first half of the rotated dimensions.

        The dimensions beyond R have cos 1 and sin 0. All heads are written out, so that values and tables have one
        layout: broadcasting over heads would cut the products into pieces of K.
        """
        angles = position_ids_BT[..., None].float() * self.inv_freq.float()
        cos, sin = angles.cos(), angles.sin()
        beyond = self.head_dim - self.rotary_dim
        cos_BTK = F.pad(torch.cat((cos, cos), dim=-1), (0, beyond), value=1.0)
        sin_BTK = F.pad(torch.cat((-sin, sin), dim=-1), (0, beyond))
        return cos_BTK.repeat(1, 1, self.n_heads).to(dtype), sin_BTK.repeat(1, 1, self.n_heads).to(dtype)


def rotate(x_BTHK: Tensor, cos_BTD: Tensor, sin_BTD: Tensor, rotary_dim: int) -> Tensor:
    """Apply RoPE to the first R of the K dimensions of each head: i and i + R/2 are a pair."""
    half = rotary_dim // 2
    first, second, beyond = x_BTHK.split((half, half, x_BTHK.shape[-1] - rotary_dim), dim=-1)
    partners_BTD = torch.cat((second, first, beyond), dim=-1).flatten(-2)
    return torch.addcmul(x_BTHK.flatten(-2) * cos_BTD, partners_BTD, sin_BTD).view_as(x_BTHK)


def eager_attention(
    module: nn.Module,
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """The explicit softmax(q k^T scale) v, for attention weights and as the reference of the fused kernels."""
    scores_BHTS = q_BHTK @ k_BHSK.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores_BHTS = scores_BHTS + attention_mask
    weights_BHTS = scores_BHTS.softmax(dim=-1, dtype=torch.float32).to(q_BHTK.dtype)
    return (weights_BHTS @ v_BHSK).transpose(1, 2).contiguous(), weights_BHTS


class ResidualProjection(nn.Linear):
    """A projection that adds to the residual stream: it starts smaller than the others."""


class PrismAttention(nn.Module):
    """Causal multi-head attention with the heads, rotated width and scale of its own layer."""

    def __init__(self, config: PrismConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.n_heads = config.head_schedule.heads[layer_idx]
        self.head_dim = config.head_schedule.head_dims[layer_idx]
        self.rotary_dim = config.rotary_dim(layer_idx)
        self.scaling = config.softmax_scale(layer_idx)
        self.num_key_value_groups = 1  # read by transformers' attention functions: no grouped heads here
        self.is_causal = True
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(config.hidden_size, config.hidden_size, bias=False) for _ in range(3)
        )
        self.o_proj = ResidualProjection(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, x_BTD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor, mask: Tensor | None, cache: Any = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        q_BTHK, k_BTHK, v_BTHK = (
            proj(x_BTD).unflatten(-1, (self.n_heads, self.head_dim)) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q_BTHK, k_BTHK = (rotate(x_BTHK, cos_BTD, sin_BTD, self.rotary_dim) for x_BTHK in (q_BTHK, k_BTHK))
        q_BHTK, k_BHSK, v_BHSK = (x_BTHK.transpose(1, 2) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK))
        if cache is not None:
            k_BHSK, v_BHSK = cache.update(k_BHSK, v_BHSK, self.layer_idx)
        name = self.config._attn_implementation or "sdpa"  # not chosen where no PreTrainedModel is around it
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention)
        y_BTHK, weights_BHTS = attend(self, q_BHTK, k_BHSK, v_BHSK, mask, scaling=self.scaling, dropout=0.0, **kwargs)
        return self.o_proj(y_BTHK.reshape(x_BTD.shape)), weights_BHTS  # engines may return [B*T, D]


class PrismMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: PrismConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = ResidualProjection(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF = F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD)
        return self.down_proj(h_BTF)


def make_norm(config: PrismConfig) -> nn.Module:
    if config.norm_type == "layernorm":
        return nn.LayerNorm(config.hidden_size, eps=config.rms_norm_eps, bias=False)
    return nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class PrismDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config: PrismConfig, layer_idx: int) -> None:
        super().__init__()
        self.input_layernorm = make_norm(config)
        self.self_attn = PrismAttention(config, layer_idx)
        self.post_attention_layernorm = make_norm(config)
        self.mlp = PrismMLP(config)

    def forward(
        self, x_BTD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor, mask: Tensor | None, cache: Any = None, **kwargs: Any
    ) -> Tensor:
        attended_BTD, _ = self.self_attn(self.input_layernorm(x_BTD), cos_BTD, sin_BTD, mask, cache=cache, **kwargs)
        x_BTD = x_BTD + attended_BTD
        return x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))


class PrismPreTrainedModel(PreTrainedModel):
    config: PrismConfig
    config_class = PrismConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["PrismDecoderLayer"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values", "cache"]  # noqa: RUF012
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": PrismDecoderLayer, "attentions": PrismAttention}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """N(0, s) with s = initializer_range, and s/sqrt(2L) on the projections into the residual stream (GPT-2).

        The shapes and the order of the draws do not depend on the schedule: one seed gives every arm the same tensors.
        `init` respects what from_pretrained has loaded.
        """
        std = self.config.initializer_range
        if isinstance(module, ResidualProjection):
            std /= (2 * self.config.num_hidden_layers) ** 0.5
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=std)
        elif isinstance(module, nn.RMSNorm | nn.LayerNorm):
            init.ones_(module.weight)
        elif isinstance(module, PrismRotaryEmbedding):
            # The buffer is not saved, so from_pretrained leaves it unfilled.
            init.copy_(module.inv_freq, module.frequencies())


class PrismModel(PrismPreTrainedModel):
    """The decoder without its head: token ids to hidden states [B, T, D]."""

    def __init__(self, config: PrismConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(PrismDecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = make_norm(config)
        schedule, theta = config.head_schedule, config.rope_parameters["rope_theta"]
        self.head_dims = schedule.head_dims
        self.rotary_emb = nn.ModuleDict(
            {
                str(head_dim): PrismRotaryEmbedding(n_heads, head_dim, config.rotary_dim(layer), theta)
                for layer, (n_heads, head_dim) in enumerate(zip(schedule.heads, schedule.head_dims, strict=True))
            }
        )
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        cache: Any = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        cache = past_key_values if cache is None else cache
        x_BTD = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        # Given positions may show packed sequences, which need a mask; those counted here cannot.
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x_BTD,
            attention_mask=attention_mask,
            position_ids=position_ids,
            **{_CACHE: cache},
        )
        if position_ids is None:
            seen = cache.get_seq_length() if cache is not None else 0
            position_ids = (torch.arange(x_BTD.shape[1], device=x_BTD.device) + seen)[None]
        tables = {head_dim: rotary(position_ids, x_BTD.dtype) for head_dim, rotary in self.rotary_emb.items()}
        for layer, head_dim in zip(self.layers, self.head_dims, strict=True):
            # Attention functions look at the positions too: flash attention finds packed sequences by them.
            x_BTD = layer(x_BTD, *tables[str(head_dim)], mask, cache=cache, position_ids=position_ids, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x_BTD), **{_CACHE: cache})


class PrismForCausalLM(PrismPreTrainedModel, GenerationMixin):
    """The language model. Its loss is computed by `loss_function_of_hidden`, which a faster callable may replace."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: PrismConfig) -> None:
        super().__init__(config)
        self.model = PrismModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.loss_function_of_hidden: Callable[[Tensor, Tensor, Tensor, int | None], Tensor] = sum_of_token_losses
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cache: Any = None,
        shift_labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V], and the loss in nats a token where labels are given.

        `labels` [B, T] are the input ids (shifted here); `shift_labels` [B, T] are already the next tokens, and then
        no logits are computed. -100 is not scored. The loss is divided by `num_items_in_batch` where given (the tokens
        of a whole step under gradient accumulation), otherwise by the scored tokens.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            cache=cache,
            **kwargs,
        )
        hidden_BTD = outputs.last_hidden_state
        loss = logits_BTV = None
        if shift_labels is None:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits_BTV = self.mask_padding_rows(self.lm_head(hidden_BTD[:, kept]))
            if labels is not None:
                shift_labels = F.pad(labels, (0, 1), value=-100)[..., 1:]
        if shift_labels is not None:
            total = self._sum_of_losses(hidden_BTD, shift_labels)
            loss = total / (num_items_in_batch if num_items_in_batch is not None else (shift_labels != -100).sum())
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits_BTV,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            **{_CACHE: outputs.get(_CACHE)},
        )

    def _sum_of_losses(self, hidden_BTD: Tensor, labels_BT: Tensor) -> Tensor:
        size = self.config.true_vocab_size
        if isinstance(self.lm_head, nn.Linear):
            return self.loss_function_of_hidden(hidden_BTD, self.lm_head.weight, labels_BT, size)
        # An adapter wraps the head: its weight alone is not what it computes.
        return _sum_of_cross_entropies(self.lm_head(hidden_BTD)[..., :size], labels_BT)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As in transformers; rows beyond `new_num_tokens` (pad_to_multiple_of) are padding."""
        tokens = new_num_tokens or self.config.true_vocab_size or self.config.vocab_size
        embedding: nn.Embedding = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        self.config.true_vocab_size = tokens if tokens < self.config.vocab_size else None
        return embedding

    def mask_padding_rows(self, logits_BTV: Tensor) -> Tensor:
        """Rows that only pad the vocabulary get -inf, so that they are never sampled or scored."""
        true_vocab_size = self.config.true_vocab_size
        if true_vocab_size is None or true_vocab_size == logits_BTV.shape[-1]:
            return logits_BTV
        padding = torch.arange(logits_BTV.shape[-1], device=logits_BTV.device) >= true_vocab_size
        return logits_BTV.masked_fill(padding, float("-inf"))


PrismModel.register_for_auto_class("AutoModel")
PrismForCausalLM.register_for_auto_class("AutoModelForCausalLM")
