"""`prism generate RUN "prompt"`: text from a model."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..errors import InputError
from ..evaluation.sampling import Sampling
from .options import Switch, parse

if TYPE_CHECKING:
    from ..evaluation.generation import Generated
    from ..evaluation.loading import LoadedModel

BATCH_SEED_OFFSET = 1_000_003
"""Between the seeds of two batches: with one seed for all, a prompt that comes again would get the same text again."""


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Continue a text, or the lines of a file.

    The text goes to standard output as it comes, the speed to standard error.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run, a checkpoint, an exported or imported folder, or the folder of a Hugging Face model."""
    prompt: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="PROMPT")] = None
    """The text to continue; an empty one begins a document."""
    prompts: Path | None = None
    """A file of prompts, one a line (.jsonl: the field prompt); the answers are printed as JSON lines."""
    max_tokens: int = 128
    """Most tokens of a text; it also ends where the context of the model is full."""
    stop: tuple[str, ...] = field(default_factory=tuple)
    """Texts before which the answer ends; end-of-text always ends it."""
    batch_size: int = 16
    """Prompts of a file that are continued at once."""
    device: str = "auto"
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights and products."""
    tokenizer: str | None = None
    """Tokenizer of a folder that holds none: gpt2, bytes, or a Hugging Face tokenizer's folder."""
    sampling: Sampling = field(default_factory=Sampling)
    json: Switch = False
    """Print prompt, text and figures as JSON, at the end."""


def main(argv: list[str]) -> int:
    options = parse(Generate, argv, prog="prism generate")
    prompts = _prompts(options)
    from ..evaluation.loading import load
    from ..kernels.choose import LAYOUT_PAYS, use_fast_generation
    from ..training.device import choose_device, torch_settings_kept
    from ..training.recipe import DeviceSettings

    with torch_settings_kept():
        device = choose_device(DeviceSettings(device=options.device, dtype=options.dtype))
        loaded = load(options.run, tokenizer=options.tokenizer, device=device.device, dtype=device.dtype)
        if options.prompts is None and options.max_tokens >= LAYOUT_PAYS:  # a file's prompts go in batches, not single
            use_fast_generation(loaded.model, device.device, device.dtype)
        if loaded.identity.get("needs_training"):
            _say("warning: these weights are an initialisation under another head schedule; they need training")
        if options.prompts is None and not options.json:
            return _streamed(loaded, prompts[0], options)
        return _whole(loaded, prompts, options)


def _prompts(options: Generate) -> list[str]:
    problems = options.sampling.problems()
    if (options.prompt is None) == (options.prompts is None):
        problems.append('give a prompt, as in prism generate RUN "Once upon a time", or a file with --prompts')
    counts = {"--max-tokens": options.max_tokens, "--batch-size": options.batch_size}
    problems += [f"{name} {value} must be at least 1" for name, value in counts.items() if value < 1]
    if "" in options.stop:
        problems.append("--stop '' would end every text at once; give some characters")
    if problems:
        raise InputError(problems)
    if options.prompts is None:
        return [options.prompt or ""]
    return _read_prompts(options.prompts)


def _read_prompts(path: Path) -> list[str]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}") from None
    if not lines:
        raise InputError(f"{path} holds no prompt")
    if path.suffix != ".jsonl":
        return lines
    prompts = []
    for number, line in enumerate(lines, start=1):
        try:
            prompts.append(str(json.loads(line)["prompt"]))
        except (ValueError, KeyError, TypeError):
            raise InputError(f'{path}, line {number}: give an object with a prompt: {{"prompt": "…"}}') from None
    return prompts


def _streamed(loaded: "LoadedModel", prompt: str, options: Generate) -> int:
    from ..evaluation.generation import generate

    def show(text: str) -> None:
        print(text, end="", flush=True)

    show(prompt)
    (found,), seconds = generate(
        loaded, [prompt], sampling=options.sampling, max_tokens=options.max_tokens, stop=options.stop, on_text=show
    )
    show("\n")
    _say(_speed([found], seconds, options))
    return 0


def _whole(loaded: "LoadedModel", prompts: Sequence[str], options: Generate) -> int:
    from ..evaluation.generation import generate

    found: list[Generated] = []
    total = 0.0
    for number, start in enumerate(range(0, len(prompts), options.batch_size)):
        batch = prompts[start : start + options.batch_size]
        own = replace(options.sampling, seed=(options.sampling.seed + number * BATCH_SEED_OFFSET) % 2**63)
        texts, seconds = generate(loaded, batch, sampling=own, max_tokens=options.max_tokens, stop=options.stop)
        total += seconds
        found += texts
        for text in texts:
            print(json.dumps(asdict(text), ensure_ascii=False), flush=True)
    _say(_speed(found, total, options))
    return 0


def _speed(found: Sequence["Generated"], seconds: float, options: Generate) -> str:
    from ..training.metrics import tokens_per_second

    tokens = sum(each.tokens for each in found)
    speed = tokens_per_second(tokens, seconds)
    ending = f", ended by {found[0].ended}" if len(found) == 1 else f" in {len(found)} texts"
    return f"{tokens:,} tokens{ending}; {speed or 0:,.1f} tokens/s; seed {options.sampling.seed}"


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
