"""`prism report STUDY`, or `prism report --from losses.csv`: the result again, from what the runs have written."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import InputError
from ..files import RESULTS, SEARCH, STUDY, refuse_foreign
from ..study.brief import brief, brief_lines
from ..study.compare import conclude
from ..study.figures import write_figures
from ..study.folder import Study
from ..study.losses_csv import read_losses
from ..study.report import write_report
from ..study.results import analyse, write_results
from .compare import show_results
from .options import Switch, parse


@dataclass(frozen=True, kw_only=True)
class Report:
    """Judge a study again, as far as it is, or the losses of any other trainer."""

    study: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[STUDY]")] = ()
    """The study folder."""
    csv: Annotated[Path | None, tyro.conf.arg(name="from", metavar="CSV")] = None
    """Losses of any trainer: columns arm, seed, step, tokens, loss."""
    baseline: str | None = None
    """With --from: the arm that the others are compared with; default: uniform, which must then be there."""
    primary: str | None = None
    """With --from: the one arm that the verdict is about; default: the only other arm, or prism."""
    out: Path | None = None
    """With --from: the folder for the results; default: beside the file, named after it."""
    brief: Switch = False
    """Only say what is done, what runs and when it ends."""
    figures: Switch = False
    """Write the report's pictures as files too: figures/*.svg and *.png."""
    json: Switch = False
    """Print the results as JSON."""


def main(argv: list[str]) -> int:
    options = parse(Report, argv, prog="prism report")
    if options.csv is not None and not options.study and not options.brief:
        return _from_csv(options)
    if len(options.study) != 1 or options.csv is not None:
        raise InputError("give one study folder, or --from and a file of losses")
    if astray := [f"--{name}" for name in ("baseline", "primary", "out") if getattr(options, name) is not None]:
        raise InputError(f"{' and '.join(astray)} {'belongs' if len(astray) == 1 else 'belong'} to --from")
    if options.brief and options.figures:
        raise InputError("--brief judges nothing, so there is nothing for --figures to draw; leave one out")
    study = Study.open(options.study[0])
    if options.brief:
        found = brief(study)
        lines = brief_lines(found, study.folder, datetime.now())
        print(json.dumps(found.mapping()) if options.json else "\n".join(lines))
        return 0
    _show(study.folder, conclude(study), options)
    return 0


def _from_csv(options: Report) -> int:
    assert options.csv is not None
    losses = read_losses(options.csv, baseline=options.baseline, primary=options.primary)
    out = options.out or options.csv.with_name(f"{options.csv.stem}-report")
    if marks := [mark for mark in (STUDY, SEARCH) if (out / mark).exists()]:
        raise InputError(f"{out} has a {marks[0]}, whose results would be lost; choose another --out")
    refuse_foreign(out, mark=RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    results = analyse(losses.arms, losses.runs, losses.endpoint)
    write_results(out, results)
    write_report(out, results, {"title": f"Losses of {options.csv.name}", "notes": losses.notes})
    if not options.json:
        for note in losses.notes:
            print(note)
    _show(out, results, options)
    return 0


def _show(folder: Path, results: dict[str, Any], options: Report) -> None:
    written = write_figures(folder, results) if options.figures else []
    show_results(folder, results, as_json=options.json)
    if written and not options.json:
        print(f"pictures: {', '.join(str(path) for path in written if path.suffix == '.svg')}, and as .png")
