"""PrismConfig: a Llama-style configuration whose number of attention heads is a schedule over the layers.

This file and its neighbours are exported beside the weights as remote code, so they import nothing but transformers,
torch and each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedConfig

from .head_schedule import HeadSchedule, ScheduleError

NORM_TYPES = ("rmsnorm", "layernorm")
ROPE_WIDTHS = ("head", "base")
ATTENTION_SCALES = ("head", "base")
_FIXED = (
    "head_schedule is fixed when a configuration is made: weights load into any schedule without a word, and then "
    "answer wrongly. For a new model, build PrismConfig(head_schedule=…); to go on from trained weights with another "
    "schedule, which needs training, load them into that model: model.load_state_dict(trained.state_dict())"
)
AUTO_MAP = {
    "AutoConfig": "configuration_prism.PrismConfig",
    "AutoModel": "modeling_prism.PrismModel",
    "AutoModelForCausalLM": "modeling_prism.PrismForCausalLM",
}


class PrismConfig(PreTrainedConfig):
    """Settings of a decoder-only transformer with a head schedule.

    `head_schedule` (a list of heads per layer, the text "3x2,6x2,8x2,12x6" or a `HeadSchedule`) is an argument and a
    read-only property, never a stored field: the heads per layer live in transformers' own `per_layer_config`, and
    `num_attention_heads` is the base heads. Without a schedule every layer has `num_attention_heads` heads.

    Reading `num_attention_heads` from a configuration whose schedule is not uniform raises (transformers' rule); read
    `head_schedule.heads[layer]` instead.

    Raises:
        ScheduleError: the schedule does not fit `hidden_size` or `num_hidden_layers`, a head dim is odd (RoPE rotates
            pairs), or a setting has an unknown value.
    """

    model_type = "prism"
    keys_to_ignore_at_inference = ("past_key_values", "cache")

    vocab_size: int = 50257
    # Rows of the embedding that stand for real tokens, where `vocab_size` is padded; None: all of them.
    true_vocab_size: int | None = None
    hidden_size: int = 768
    intermediate_size: Any = None  # None: floor(8 d / 3), the paper's SwiGLU
    num_hidden_layers: int = 12
    num_attention_heads: int | None = None  # None: the base heads of the schedule, or hidden_size / 64
    max_position_embeddings: int = 1024
    initializer_range: float = 0.02
    norm_type: str = "rmsnorm"
    rms_norm_eps: float = 1e-5
    rope_parameters: Any = None  # None: plain RoPE, theta 10,000
    rope_width: str = "head"
    attention_scale: str = "head"
    tie_word_embeddings: bool = True
    use_cache: bool = True
    hidden_act: str = "silu"
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(
        self,
        head_schedule: HeadSchedule | Sequence[int] | str | None = None,
        per_layer_config: Mapping[int | str, Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = 8 * self.hidden_size // 3
        if self.rope_parameters is None:
            self.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
        schedule = self._resolve_schedule(head_schedule, per_layer_config)
        self._validate(schedule)
        base_heads = self.num_attention_heads = self.num_attention_heads or schedule.base_heads
        overrides = {
            layer: {"num_attention_heads": heads} for layer, heads in enumerate(schedule.heads) if heads != base_heads
        }
        # transformers adds the class being saved only; an engine such as vLLM looks for AutoModel.
        kwargs.setdefault("auto_map", dict(AUTO_MAP))
        super().__post_init__(per_layer_config=overrides or None, **kwargs)
        self._validate_rope()

    def _resolve_schedule(
        self,
        head_schedule: HeadSchedule | Sequence[int] | str | None,
        per_layer_config: Mapping[int | str, Mapping[str, Any]] | None,
    ) -> HeadSchedule:
        layers, width = self.num_hidden_layers, self.hidden_size
        if head_schedule is None:
            base_heads = self.num_attention_heads or max(1, width // 64)
            heads = [base_heads] * layers
            for layer, override in (per_layer_config or {}).items():
                foreign = set(override) - {"num_attention_heads"}
                if foreign or not 0 <= int(layer) < layers:
                    raise ScheduleError(
                        f"per_layer_config[{layer}]={dict(override)}: only num_attention_heads may differ from layer "
                        f"to layer, for layers 0 to {layers - 1}"
                    )
                heads[int(layer)] = override["num_attention_heads"]
            return HeadSchedule.parse(heads, d_model=width, n_layers=layers)
        if per_layer_config:
            raise ScheduleError("head_schedule and per_layer_config both say the heads of each layer; give one of them")
        if isinstance(head_schedule, HeadSchedule):
            if head_schedule.d_model != width:
                raise ScheduleError(
                    f"head_schedule is made for d_model={head_schedule.d_model}, but hidden_size={width}; "
                    "build it with the d_model of the model"
                )
            head_schedule = head_schedule.heads
        return HeadSchedule.parse(head_schedule, d_model=width, n_layers=layers)

    def _validate(self, schedule: HeadSchedule) -> None:
        problems = [
            f"{name}={value!r} is not known; choose one of: {', '.join(known)}"
            for name, value, known in (
                ("norm_type", self.norm_type, NORM_TYPES),
                ("rope_width", self.rope_width, ROPE_WIDTHS),
                ("attention_scale", self.attention_scale, ATTENTION_SCALES),
                ("hidden_act", self.hidden_act, ("silu",)),
            )
            if value not in known
        ]
        problems += [
            f"layer {layer} has head dim {dim} ({heads} heads), which is odd; RoPE rotates pairs, so the head dim must "
            "be even"
            for layer, (heads, dim) in enumerate(zip(schedule.heads, schedule.head_dims, strict=True))
            if dim % 2
        ]
        if self.true_vocab_size is not None and not 0 < self.true_vocab_size <= self.vocab_size:
            problems.append(f"true_vocab_size={self.true_vocab_size} must lie in 1..vocab_size={self.vocab_size}")
        if problems:
            raise ScheduleError("\n".join(problems))

    def _validate_rope(self) -> None:
        """Of what transformers has made of the settings: it also reads older ones, such as rope_scaling."""
        rope = dict(self.rope_parameters)
        plain = {"rope_type": "default", "partial_rotary_factor": 1.0, "rope_theta": rope.get("rope_theta")}
        if "rope_theta" not in rope or any(plain.get(key) != value for key, value in rope.items()):
            raise ScheduleError(
                f"rope_parameters={rope!r}: this model has plain RoPE; give rope_type default and rope_theta"
            )

    @property
    def head_schedule(self) -> HeadSchedule:
        """The heads of every layer, read from `per_layer_config`."""
        heads = [layer.num_attention_heads for layer in self.per_layer_config]
        return HeadSchedule(heads, d_model=self.hidden_size)

    @head_schedule.setter
    def head_schedule(self, value: Any) -> None:
        raise ScheduleError(f"head_schedule={value!r}: {_FIXED}")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers, but `from_pretrained(folder, head_schedule=…)` is refused."""
        if given := {"head_schedule", "per_layer_config"} & kwargs.keys():
            told = ", ".join(f"{name}={kwargs[name]!r}" for name in sorted(given))
            raise ScheduleError(f"{told}: {_FIXED}")
        return super().from_dict(config_dict, **kwargs)

    def rotary_dim(self, layer: int) -> int:
        """Dimensions of each head of `layer` that RoPE rotates: all of them, or the base head dim's."""
        schedule = self.head_schedule
        return schedule.head_dims[layer] if self.rope_width == "head" else schedule.base_head_dim

    def softmax_scale(self, layer: int) -> float:
        """Factor on q·k in `layer`: 1/sqrt(d_h) (paper, section 1), or sqrt(b)/d_h with b the base head dim."""
        schedule = self.head_schedule
        head_dim = schedule.head_dims[layer]
        if self.attention_scale == "head":
            return float(head_dim**-0.5)
        return float(schedule.base_head_dim**0.5 / head_dim)


PrismConfig.register_for_auto_class()
