"""`prism export RUN --to hf|onnx --out FOLDER`: a trained model in the formats of other tools."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .options import Switch, parse


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a model for other tools; a fresh process then loads it, as proof."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run, a checkpoint, or an imported folder."""
    to: str = "hf"
    """hf: a Hugging Face folder with its own code, tokenizer, model card and golden logits.
    onnx: a graph with KV cache, for a prompt and for one token after another (extra [export])."""
    out: Path
    """The folder to make."""
    tokenizer: str | None = None
    """Tokenizer of a folder that holds none: gpt2, bytes, or a Hugging Face tokenizer's folder."""
    json: Switch = False
    """Print the result as JSON."""


def main(argv: list[str]) -> int:
    options = parse(Export, argv, prog="prism export")
    from ..interchange.export import export  # imports torch: after the options are known to be right

    found = export(options.run.expanduser(), options.to, options.out.expanduser(), tokenizer=options.tokenizer)
    if options.json:
        print(json.dumps({**asdict(found), "out": str(options.out)}))
        return 0
    distances = ", ".join(f"{name} {value:.1g}" for name, value in found.distances.items())
    print(f"heads per layer {found.head_schedule}")
    print(f"loaded again in a fresh process without network; largest difference: {distances}")
    print(f"exported: {options.out}")
    return 0
