"""`prism reproduce TARGET… --scale small`: the paper, end to end, beside its own numbers."""

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data import prepare
from ..errors import InputError
from ..reproduce.plan import Plan, make_plan, plan_lines
from ..reproduce.run import Watch, reproduce
from ..reproduce.studies import TEXT, PlannedStudy, plan_studies, text_of
from ..reproduce.targets import REHEARSAL, find_targets, load_scale
from ..study.estimate import parse_duration
from ..study.folder import Study
from ..study.planning import text_problems
from ..study.runner import Progress as StudyProgress
from ..training.recipe import Recipe
from .options import Switch, parse
from .progress import CompareProgress, ScoreProgress
from .recipes import vocab_size

DEFAULT_OUT = Path("studies") / "reproduce"


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train what the paper trained, and set every number beside the paper's.

    The plan comes first. The same command goes on; several machines may share it.
    """

    targets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TARGET [TARGET ...]")] = ()
    """table2 (loss, speed, zero-shot; also as table3), ablation (eight schedules), attention (distance by layer),
    controls (what the paper lacks: every uniform-N, reversed, shuffled, two settings of wide heads), or all."""
    scale: str = "small"
    """small (124M), medium (354M), large (757M), or rehearsal: all of it on two cores in minutes, no evidence."""
    seeds: int | None = None
    """Seeds for each arm; default: 3, as in the paper (2 of a rehearsal)."""
    budget: str | None = None
    """Stop after so many hours (8, 8h, 30min); runs are saved where they are, and the same command goes on."""
    data: tuple[str, ...] = ()
    """Text: one prepared folder, or files; default: data/fineweb, from prism data prepare fineweb."""
    eval_data: Path | None = None
    """Folder with the items of the zero-shot tasks; what is not in it comes from the hub's cache, or from the hub."""
    out: Path = DEFAULT_OUT
    """The folder of the studies, one below it for each scale and target."""
    jobs: int | None = None
    """Runs side by side; default: one for each GPU, or as many as fit on the CPU's cores."""
    micro_batch: int | None = None
    """Sequences in one forward pass of one device; changes memory and time, not the batch of a step."""
    device: str | None = None
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps; default: the recipe's, which is auto."""
    compile: Switch = True
    """Compile layers with torch.compile where the recipe of the scale does; --no-compile: nowhere."""
    dry_run: Switch = False
    """Only print the plan."""
    json: Switch = False
    """Print the result (or the plan of a dry run) as JSON; everything else goes to stderr."""


def main(argv: list[str]) -> int:
    options = parse(Reproduce, argv, prog="prism reproduce")
    targets = find_targets(options.targets, options.scale)
    budget = _budget(options.budget)
    scale = load_scale(options.scale)
    folder = options.out / options.scale
    asked = _with_options(scale.recipe, options)
    recipe = text_of(asked, folder)
    studies = plan_studies(targets, scale, recipe, folder, seeds=options.seeds, jobs=options.jobs)
    problems = () if (folder / TEXT).exists() else text_problems(asked)
    plan = make_plan(
        options.scale,
        studies,
        vocab_size=vocab_size(asked),
        text=", ".join(asked.data.paths) or "the documentation that every Python brings",
        text_problems=problems,
        budget_seconds=budget,
    )
    if options.dry_run and options.json:
        print(json.dumps(plan.mapping()))
        return 0
    say = partial(print, file=sys.stderr) if options.json else print
    _show_plan(plan, options.out, say)
    if options.dry_run:
        return 0
    if problems:
        raise InputError([*problems, *_how_to_get_text(options)])
    if recipe.data.paths != asked.data.paths:
        prepare(asked.data, folder / TEXT, say=say)
    sections = _reproduce(options, studies, budget)
    _show(sections, [study.folder for study in studies], as_json=options.json)
    return 0


def _budget(text: str | None) -> float | None:
    """Seconds; a bare number is hours."""
    if text is None:
        return None
    return parse_duration(f"{text}h" if text.replace(".", "", 1).isdigit() else text)


def _with_options(recipe: Recipe, options: Reproduce) -> Recipe:
    data = replace(recipe.data, paths=options.data) if options.data else recipe.data
    training = replace(
        recipe.training, micro_batch=recipe.training.micro_batch if options.micro_batch is None else options.micro_batch
    )
    device = replace(
        recipe.device, device=options.device or recipe.device.device, compile=options.compile and recipe.device.compile
    )
    return replace(recipe, data=data, training=training, device=device)


def _how_to_get_text(options: Reproduce) -> list[str]:
    if options.data or options.scale == REHEARSAL:
        return []
    tokens = {
        "small": "2.9B",
        "medium": "10.5B --subset sample-100BT",
        "large": "21B --subset sample-100BT",
    }[options.scale]
    ready = " (or fineweb-gpt2: ready shards, quicker)" if options.scale == "small" else ""
    return [f"prepare the text first: prism data prepare fineweb --tokens {tokens} --out data/fineweb{ready}"]


def _show_plan(plan: Plan, out: Path, say: Callable[[str], None]) -> None:
    for line in plan_lines(plan, out):
        say(line)
    for problem in plan.text_problems:
        for line in textwrap.wrap(f"warning: {problem}", 80, subsequent_indent="  "):
            say(line)
    say("")


class _Progress:
    """One live line at a time: of the study that is trained, or of the models that are measured."""

    def __init__(self) -> None:
        self._now: CompareProgress | ScoreProgress = CompareProgress()

    def __enter__(self) -> "_Progress":
        self._now.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._now.__exit__()

    def _turn_to(self, other: CompareProgress | ScoreProgress) -> Any:
        self._now.__exit__()
        self._now = other
        return other.__enter__()

    def say(self, sentence: str) -> None:
        self._now.say(sentence)

    def begin_study(self, study: Study) -> None:
        self._turn_to(CompareProgress()).begin(study)

    def show(self, progress: StudyProgress) -> None:
        if isinstance(self._now, CompareProgress):
            self._now.show(progress)

    def begin_model(self, name: str) -> None:
        scoring = self._now if isinstance(self._now, ScoreProgress) else self._turn_to(ScoreProgress())
        scoring.begin(name)

    def show_items(self, done: int, total: int) -> None:
        if isinstance(self._now, ScoreProgress):
            self._now.show(done, total)


def _reproduce(options: Reproduce, studies: Sequence[PlannedStudy], budget: float | None) -> list[dict[str, Any]]:
    with _Progress() as progress:
        watch = Watch(
            say=progress.say,
            begin_study=progress.begin_study,
            on_progress=progress.show,
            begin_model=progress.begin_model,
            on_items=progress.show_items,
        )
        return reproduce(options.scale, studies, eval_data=options.eval_data, budget_seconds=budget, watch=watch)


def _show(sections: Sequence[dict[str, Any]], folders: Sequence[Path], *, as_json: bool) -> None:
    """Every section as a table, and where the pages are."""
    if as_json:
        print(json.dumps({"sections": list(sections)}))
        return
    console = Console(highlight=False)
    for section in sections:
        console.print()
        console.print(_table(section))
        for note in section["notes"]:
            console.print(Text(note, style="dim"))
    print()
    for folder in dict.fromkeys(folders):
        print(f"report: {folder / 'report.html'}")


def _table(section: dict[str, Any]) -> Table:
    caption = f" {section['caption']}" if section["caption"] else ""
    title = f"{section['target']}, scale {section['scale']}, beside the paper's {section['paper_scale']}.{caption}"
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold", title=title)
    table.title_justify = "left"
    for number, column in enumerate(section["columns"]):
        table.add_column(column, justify="left" if number in (0, 5) else "right", overflow="fold")
    for row in section["rows"]:
        table.add_row(*row["cells"])
    return table
