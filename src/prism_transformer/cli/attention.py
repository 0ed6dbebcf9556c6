"""`prism attention RUN…|STUDY`: how far each layer looks back, and how that differs between the arms of a study."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..errors import InputError
from .attention_tables import run_lines, study_lines
from .eval import is_study
from .options import Switch, parse
from .progress import ScoreProgress


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Measure how far back each layer looks (equation 1 of the paper).

    Also entropy and the share of position 0. Of a study: each arm's differences.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...] | STUDY")] = ()
    """Runs, checkpoints, or folders of Hugging Face models; or one study."""
    text: tuple[str, ...] = ()
    """Text to measure on: files, folders, globs, or - for standard input; default: the validation split of training."""
    sequences: int = 8
    """Windows to measure, spread over the text."""
    context: int | None = None
    """Tokens of a window; default: the context of training. Counted are the queries of its last half."""
    documents: Literal["packed", "apart"] = "packed"
    """packed: windows as in training; apart: a token sees its own document only."""
    by_head: Switch = False
    """Show every head, not only the mean of a layer."""
    device: str = "auto"
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps; always in float32."""
    tokenizer: str | None = None
    """Tokenizer of a folder that holds none: gpt2, bytes, or a Hugging Face tokenizer's folder."""
    text_field: str = "text"
    """The field of .jsonl lines, and the column of .parquet files, that holds the text."""
    out: Path | None = None
    """Where the result of a run is kept; default: in the run, or in evaluations/ for other folders."""
    json: Switch = False
    """Print everything as JSON."""


def main(argv: list[str]) -> int:
    options = parse(Attention, argv, prog="prism attention")
    studies = [path for path in options.runs if is_study(path)]
    _check(options, studies)
    from ..training.device import choose_device, torch_settings_kept
    from ..training.recipe import DeviceSettings

    with ScoreProgress() as progress, torch_settings_kept():
        device = choose_device(DeviceSettings(device=options.device, dtype="float32")).device
        if studies:
            found, written = _of_study(studies[0], options, device, progress)
            lines = [*study_lines(found), *(f"written: {path}" for path in written)]
        else:
            found = {"runs": [_of_run(path, options, device, progress) for path in options.runs]}
            lines = [line for run in found["runs"] for line in run_lines(run, by_head=options.by_head)]
    print(json.dumps(found) if options.json else "\n".join(lines))
    return 0


def _check(options: Attention, studies: Sequence[Path]) -> None:
    problems = []
    if not options.runs:
        problems.append("name a run, a checkpoint, a study, or the folder of a Hugging Face model")
    if studies and len(options.runs) > 1:
        problems.append("give one study alone, or runs without a study")
    given = {
        "--text": options.text,
        "--tokenizer": options.tokenizer,
        "--out": options.out,
        "--by-head": options.by_head,
    }
    if studies and any(given.values()):
        names = " and ".join(name for name, value in given.items() if value)
        problems.append(f"{names}: of a study, attention is measured on its own validation split and kept in it")
    counts = {
        "--sequences": (options.sequences, 1),
        "--context": (2 if options.context is None else options.context, 2),
    }
    problems += [f"{name} {value} must be at least {least}" for name, (value, least) in counts.items() if value < least]
    if problems:
        raise InputError(problems)


def _of_run(path: Path, options: Attention, device: Any, progress: ScoreProgress) -> dict[str, Any]:
    from ..evaluation.attention import kept_attention
    from ..evaluation.loading import load
    from ..evaluation.scores import place_of

    progress.begin(str(path))
    loaded = load(path, tokenizer=options.tokenizer, device=device)
    found = kept_attention(
        loaded,
        place_of(loaded, options.out),
        text=options.text,
        sequences=options.sequences,
        context=options.context or loaded.context,
        documents=options.documents,
        text_field=options.text_field,
        on_progress=progress.show,
    )
    return {"name": loaded.name, **found}


def _of_study(
    path: Path, options: Attention, device: Any, progress: ScoreProgress
) -> tuple[dict[str, Any], list[Path]]:
    from ..study.attention import measure_study, write_attention
    from ..study.compare import conclude
    from ..study.folder import Study

    study = Study.open(path)
    found = measure_study(
        study,
        sequences=options.sequences,
        context=options.context,
        documents=options.documents,
        device=device,
        begin=progress.begin,
        on_progress=progress.show,
    )
    written = write_attention(path, found)
    conclude(study)  # the report shows it now
    return found, [*written, path / "report.html"]
