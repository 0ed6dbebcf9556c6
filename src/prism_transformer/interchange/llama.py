"""A Llama-style folder in Hugging Face layout as a model of this package.

A uniform schedule is exactly a Llama, so names and weights are taken as they are. Grouped key/value heads are repeated,
which computes the same (every query head gets its own copy of the keys and values that it read before).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import GenerationConfig, LlamaConfig

from ..design.families import expand_arm
from ..errors import InputError
from ..files import read_json
from ..model.configuration_prism import PrismConfig
from ..model.head_schedule import HeadSchedule, ScheduleError
from ..model.modeling_prism import PrismForCausalLM

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class LlamaFolder:
    """A folder whose configuration was read and can be imported."""

    path: Path
    config: Any
    """A LlamaConfig, whose sizes are all set."""

    @property
    def head_schedule(self) -> HeadSchedule:
        """The schedule of the weights: the same heads in every layer."""
        config = self.config
        return HeadSchedule([config.num_attention_heads] * config.num_hidden_layers, d_model=config.hidden_size)

    @property
    def repeats(self) -> int:
        """Query heads that share one key/value head."""
        return int(self.config.num_attention_heads // self.config.num_key_value_heads)


def open_llama(path: Path) -> LlamaFolder:
    """Read the configuration of a folder. Raises InputError with everything in it that a Prism model cannot compute."""
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give the folder of a Llama-style model in Hugging Face layout")
    if not (path / "config.json").is_file():
        raise InputError(f"{path} has no config.json: it is no model in Hugging Face layout; add its config.json")
    stated = read_json(path / "config.json").get("model_type")
    if stated == PrismConfig.model_type:
        raise InputError(f"{path} is a model of this package already: give it as a RUN")
    if stated != "llama":
        raise InputError(
            f"{path}: model_type {stated!r} cannot be imported; only 'llama' can (Llama, SmolLM2 and their like), "
            "since it is what a uniform schedule computes"
        )
    try:
        config = LlamaConfig.from_pretrained(path)
    except Exception as error:  # transformers raises anything here, by what is wrong in the file
        raise InputError(f"{path}: config.json cannot be used: {error}") from None
    problems = _differences_to_prism(config)
    if problems:
        raise InputError([f"{path}: {problem}" for problem in problems])
    return LlamaFolder(path, config)


def _differences_to_prism(config: Any) -> list[str]:
    """What a Llama may have and this model has not."""
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    rope = config.rope_parameters or {}
    refused = {
        f"head_dim={config.head_dim}, but d_model / heads = {config.hidden_size} / {heads}; every head schedule keeps "
        "head dim x heads = d_model": config.head_dim * heads != config.hidden_size,
        f"num_key_value_heads={groups} does not divide num_attention_heads={heads}": bool(heads % groups),
        "attention_bias is on; this model has no biases": config.attention_bias,
        "mlp_bias is on; this model has no biases": config.mlp_bias,
        f"hidden_act={config.hidden_act!r}; this model has SwiGLU, 'silu'": config.hidden_act != "silu",
        f"RoPE is scaled ({rope.get('rope_type')}); this model has plain RoPE": rope.get("rope_type") != "default",
        "RoPE rotates a part of each head": rope.get("partial_rotary_factor", 1.0) != 1.0,
    }
    return [sentence for sentence, is_so in refused.items() if is_so]


def schedule_for(source: LlamaFolder, text: str | None) -> HeadSchedule:
    """The schedule that `text` (an ARM) names for the sizes of the source; None: the source's own."""
    own = source.head_schedule
    if text is None:
        return own
    found = expand_arm(text, n_layers=own.n_layers, d_model=own.d_model, base_heads=own.base_heads)
    if len(found) != 1:
        raise InputError(f"--schedule {text} is {len(found)} schedules; name one: {', '.join(found)}")
    return next(iter(found.values()))


def convert(source: LlamaFolder, schedule: HeadSchedule) -> PrismForCausalLM:
    """The model of the source's weights with `schedule`, in the type of the source's weights.

    Raises InputError where weights are missing, damaged, or not those of the configuration.
    """
    config = _prism_config(source.config, schedule)
    tensors = _read_weights(source.path)
    embedding = tensors.get("model.embed_tokens.weight")
    if config.tie_word_embeddings and embedding is not None:
        tensors["lm_head.weight"] = embedding
    for name in tensors:
        grouped = name.endswith((".k_proj.weight", ".v_proj.weight"))
        if grouped and tensors[name].shape[0] % source.config.head_dim == 0:  # others are told of below
            tensors[name] = _repeat_heads(tensors[name], source.config.head_dim, source.repeats)
    model = PrismForCausalLM(config)
    problems = _weight_problems(tensors, model.state_dict())
    if problems:
        raise InputError([f"{source.path}: {problem}" for problem in problems])
    nn.Module.to(model, next(iter(tensors.values())).dtype)
    model.load_state_dict(tensors)
    if (source.path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(source.path)
    model.train(False)
    return model


def _prism_config(llama: Any, schedule: HeadSchedule) -> PrismConfig:
    same = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "max_position_embeddings",
        "initializer_range",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
    )
    settings: dict[str, Any] = {name: getattr(llama, name) for name in same}
    try:
        return PrismConfig(**settings, head_schedule=schedule)  # type: ignore[call-arg]  # an argument of __post_init__
    except ScheduleError as error:
        raise InputError(error.problems) from None


def _repeat_heads(weight: Tensor, head_dim: int, times: int) -> Tensor:
    """[groups * K, D] to [groups * times * K, D]: each head `times` times in a row, as grouped attention reads it."""
    heads: Tensor = weight.unflatten(0, (-1, head_dim))
    return heads.repeat_interleave(times, dim=0).flatten(0, 1)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder's safetensors. Raises InputError where there is none, or one cannot be read."""
    tensors: dict[str, Tensor] = {}
    problems = []
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (OSError, SafetensorError) as error:
            reason = "is missing" if not path.is_file() else f"is cut short or not a safetensors file ({error})"
            problems.append(f"{path} {reason}; fetch it again")
    if problems:
        raise InputError(problems)
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("rotary_emb.inv_freq")}


def _weight_files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))]
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not pickles:
        raise InputError(f"{folder} has no weights: neither {WEIGHTS} nor {INDEX}; fetch them again")
    raise InputError(
        f"{folder}: its weights are in {pickles[0]}, which can run code when it is read; only safetensors are read "
        f'here. Where you trust it, convert it: python -c "from transformers import AutoModelForCausalLM as M; '
        f"M.from_pretrained('{folder}').save_pretrained('CONVERTED')\", and copy the tokenizer's files beside"
    )


def _weight_problems(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    def shape(tensor: Tensor) -> list[int]:
        return list(tensor.shape)

    problems = [f"the weights lack {name}" for name in wanted if name not in found]
    problems += [f"the weights have {name}, which a Llama has not" for name in found if name not in wanted]
    problems += [
        f"{name} has the shape {shape(found[name])}, but config.json makes it {shape(wanted[name])}"
        for name in wanted
        if name in found and found[name].shape != wanted[name].shape
    ]
    rest = len(problems) - 8
    return problems[:8] + ([f"and {rest} more of that kind"] if rest > 0 else [])


@torch.no_grad()
def distance_to_source(model: PrismForCausalLM, source: LlamaFolder, ids_BT: Tensor) -> float:
    """The largest difference of a logit between `model`, in fp32, and transformers' own Llama."""
    from transformers import LlamaForCausalLM

    llama: Any = LlamaForCausalLM.from_pretrained(source.path, dtype=torch.float32, local_files_only=True)
    theirs = llama(ids_BT, use_cache=False).logits
    ours = model(ids_BT, use_cache=False).logits
    return float((ours - theirs).abs().max())
