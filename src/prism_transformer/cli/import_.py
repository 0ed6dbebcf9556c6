"""`prism import FOLDER --out FOLDER`: a Llama-style model as a RUN."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..cost import short
from .options import Switch, parse


@dataclass(frozen=True, kw_only=True)
class Import:
    """Make a RUN of a Llama-style folder in Hugging Face layout.

    Llama, SmolLM2 and their like are read, from safetensors only.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder with config.json, the weights and the tokenizer."""
    out: Path
    """The folder to make."""
    schedule: str | None = None
    """Heads per layer: a family (uniform-N, prism, …) or heads x layers like 3x2,9x28.
    Default: the source's own, whose logits stay as they are.
    Any other makes the weights an initialisation that needs training."""
    json: Switch = False
    """Print the result as JSON."""


def main(argv: list[str]) -> int:
    options = parse(Import, argv, prog="prism import")
    from ..interchange.importing import import_folder  # imports torch: after the options are known to be right

    imported = import_folder(options.folder.expanduser(), options.out.expanduser(), schedule=options.schedule)
    if options.json:
        print(json.dumps({**asdict(imported), "out": str(options.out)}))
    else:
        print("\n".join([*_lines(imported, options.out), f"imported: {options.out}"]))
    return 0


def _lines(imported: Any, out: Path) -> list[str]:
    lines = [f"{imported.model_type}, {short(imported.parameters)} parameters"]
    if imported.repeats > 1:
        lines.append(
            f"grouped key/value heads: each is repeated {imported.repeats} times, which is exact but larger "
            f"({short(imported.source_parameters)} parameters in the source)"
        )
    if imported.tokenizer is None:
        lines.append("no tokenizer in the folder: name one with --tokenizer where text is read")
    if imported.spare_rows:
        lines.append(f"{imported.spare_rows:,} rows of the vocabulary have no token; prism generate never picks them")
    if imported.distance is not None:
        lines.append(
            f"heads per layer {imported.head_schedule}, as in the source: "
            f"its logits are kept (largest difference {imported.distance:.1g})"
        )
    else:
        lines.append(
            f"heads per layer {imported.head_schedule}, not the source's {imported.source_schedule}: an initialisation "
            f"that needs training, for example by\n  prism train --from {out}"
        )
    return lines
