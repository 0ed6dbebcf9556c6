"""README.md beside exported weights: what the model is, how it was trained, how to load it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost import short
from ..design.drawing import phase_rows
from ..evaluation.loading import LoadedModel
from ..files import RECIPE
from ..settings import read_yaml
from ..training.metrics import METRICS, read_metrics

_LOAD = """```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder}", trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained("{folder}", trust_remote_code=True, dtype=torch.float32)
prompt = tokenizer("The", return_tensors="pt")
text = model.generate(prompt.input_ids, attention_mask=prompt.attention_mask, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(text[0]))
```"""

_NEEDS = (
    "The code of the architecture lies beside the weights, so nothing but transformers (5.16.1 or newer) is needed."
)
_ONNX = """`model.onnx` (its weights are in `model.onnx.data`) takes `input_ids` [B, T], `attention_mask` [B, S + T]
and the cache `past_key_values.L.key` and `.value` [B, heads, S, head dim] of every layer L, and gives `logits`
[B, T, V] and the grown cache `present.L.key` and `.value`. The prompt goes in with an empty cache, S = 0; then one
token after another. Heads and head dim differ from layer to layer: read them from `session.get_inputs()`. Pad prompts
on the left."""

_SERVE = """```
vllm serve {folder} --trust-remote-code --model-impl transformers
```

vLLM 0.32.0 wrote the same greedy tokens for such a model through its class `LLM`, on a CPU; `vllm serve` was not
tried."""


@dataclass(frozen=True)
class Training:
    """How the run went, where it is known."""

    recipe: Mapping[str, Any]
    final: Mapping[str, Any]


def training_of(loaded: LoadedModel) -> Training | None:
    """The recipe and the last evaluation of the run of a model; None for one without a run."""
    if loaded.run is None:
        return None
    path = loaded.run / METRICS
    records = read_metrics(path) if path.is_file() else []
    evaluated = [record for record in records if "val_loss" in record and record["step"] <= (loaded.step or 0)]
    return Training(read_yaml(loaded.run / RECIPE), evaluated[-1] if evaluated else {})


def model_card(loaded: LoadedModel, folder: str, target: str) -> str:
    """The text of README.md for the folder of that name, exported to `target`."""
    parts = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [prism-transformer]\n---",
        f"# {folder}",
        *_what_it_is(loaded),
        *_how_it_was_trained(loaded),
        "## Loading",
        *([_ONNX] if target == "onnx" else [_NEEDS, _LOAD.format(folder=folder), _SERVE.format(folder=folder)]),
        *_before_use(loaded),
    ]
    return "\n\n".join(parts) + "\n"


def _what_it_is(loaded: LoadedModel) -> list[str]:
    config: Any = loaded.model.config
    schedule = config.head_schedule
    rows = ["| layers | heads | head dim |", "|---|---|---|"]
    for first, last, heads in phase_rows(schedule):
        rows.append(f"| {first if first == last else f'{first}–{last}'} | {heads} | {schedule.d_model // heads} |")
    return [
        "A decoder-only language model whose number of attention heads changes from layer to layer while every weight "
        "keeps its shape (Prism Transformer, arXiv 2606.27449). The weights load into a model of any other head "
        "schedule without an error, and then answer wrongly: keep config.json with them.",
        f"{short(loaded.model.num_parameters())} parameters, {schedule.n_layers} layers, width {schedule.d_model}, "
        f"context {loaded.context:,}, {config.true_vocab_size or config.vocab_size:,} tokens "
        f"(tokenizer {loaded.tokenizer.name}). Head schedule `{schedule}`, fingerprint "
        f"`{schedule.fingerprint[:12]}`:",
        "\n".join(rows),
    ]


def _how_it_was_trained(loaded: LoadedModel) -> list[str]:
    identity, training = loaded.identity, training_of(loaded)
    if "imported_from" in identity:
        told = f"Imported from {identity['imported_from']}, whose head schedule is {identity['source_head_schedule']}."
        if identity["needs_training"]:
            told += " Under this other schedule the weights are an initialisation: the model needs training."
        return ["## Training", told]
    if training is None:
        return []
    settings, optimizer = training.recipe.get("training", {}), training.recipe.get("optimizer", {})
    lines = [
        f"- step {loaded.step:,} of seed {settings.get('seed')}, {settings.get('tokens_per_step'):,} tokens a step, "
        f"peak learning rate {optimizer.get('lr')} ({optimizer.get('lr_schedule')})",
        f"- {loaded.step * settings.get('tokens_per_step', 0):,} tokens, of a text of {_text_of(loaded)}",
        "- before each document stood end-of-text, and the tokenizer here puts it before each text",
    ]
    if "val_loss" in training.final:
        loss = training.final["val_loss"]
        bits = training.final.get("val_bits_per_byte")
        more = f", {bits:.4f} bits per byte" if bits else ""
        lines.append(f"- validation loss {loss:.4f} nats per token{more} at step {training.final['step']:,}")
    return ["## Training", "\n".join(lines)]


def _text_of(loaded: LoadedModel) -> str:
    fingerprint = str(loaded.identity.get("data_fingerprint", "unknown"))[:12]
    if loaded.corpus is None:
        return f"fingerprint `{fingerprint}`"
    return f"{len(loaded.corpus.split('train')):,} tokens, fingerprint `{fingerprint}`"


def _before_use(loaded: LoadedModel) -> list[str]:
    heads = loaded.model.config.head_schedule.heads
    golden = (
        "- `golden.safetensors` holds 16 token ids and the logits that the model gave for them in fp32 on a CPU: a "
        "tool that computes others than those (beyond 0.001) does not run this model."
    )
    parallel = (
        "- tensor parallelism needs a number of devices that divides the heads of every layer: at most "
        f"{math.gcd(*heads)}."
    )
    return ["## Before use", f"{golden}\n{parallel}"]
