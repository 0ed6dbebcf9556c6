"""`prism compare`: does a schedule beat uniform heads, on my text, within my budget, by how much, how sure?"""

import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from ..errors import InputError, RunError
from ..files import STUDY
from ..machine import thread_warnings
from ..settings import from_mapping
from ..study.arms import Arm
from ..study.budget import Candidate
from ..study.compare import conclude, open_study
from ..study.estimate import Estimate, check_disk, describe, duration, parse_duration, text_sentences
from ..study.folder import Study
from ..study.plan import StudySettings
from ..study.planning import DEFAULT_BUDGET, apply_budget, check_plan, choose_recipe, estimator, text_problems
from ..study.runner import run_study
from ..study.table import terminal_table
from ..training.recipe import ModelSettings, OptimizerSettings, Recipe, with_model
from ..training.recipe_files import RecipeFile, recipe_names
from ..training.text import MOST_EPOCHS
from ..wording import count
from .options import Switch, given_options
from .progress import CompareProgress
from .recipes import (
    RecipeOptions,
    chosen_recipe,
    parse_over_recipe,
    recipe_argument,
    recipe_options,
    vocab_size,
)

SMALLEST = "demo"
DEFAULT_OUT = Path("studies") / "compare"
CALIBRATION = {
    "calibration_less": "20 % fewer tokens: must be found",
    "calibration_null": "another initial seed: must not",
}


@dataclass(frozen=True, kw_only=True)
class Compare(RecipeOptions):
    """Train each head schedule with several seeds, and judge the paired differences."""

    recipe: str = ""
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file.
    Not given: the largest that fits the budget (30 min) with at most 4 epochs of the text; where none does, demo.
    The values shown here are demo's."""
    out: Path | None = None
    """The study folder; default: studies/RECIPE, or studies/compare.
    The same command again goes on; more seeds or arms extend it."""
    dry_run: Switch = False
    """Only say what would be trained and what it takes."""
    json: Switch = False
    """Print the results (or the plan of a dry run) as JSON."""
    study: StudySettings = field(default_factory=StudySettings)
    optimizer: Annotated[OptimizerSettings, tyro.conf.Suppress] = field(default_factory=OptimizerSettings)


def main(argv: list[str]) -> int:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "prism compare starts its own processes, one run each: start it once, without torchrun, and say --jobs N; "
            "torchrun shares out a single run, of prism train"
        )
    _refuse_text(argv)
    options = _parse(argv)
    if options.model.schedule != ModelSettings().schedule:
        raise InputError(f"--schedule {options.model.schedule}: a comparison takes its schedules as --arms")
    recipe, settings = chosen_recipe(options), options.study
    arms = check_plan(recipe, settings)
    out = options.out or Path("studies") / options.recipe
    size = vocab_size(recipe)
    fixed = [name for name in ("seeds", "tokens") if f"--{name}" in given_options(argv)]
    whole = recipe.trained_tokens
    recipe, settings = apply_budget(recipe, settings, out, vocab_size=size, fixed=fixed)
    if recipe.trained_tokens < whole:
        shorter = f"runs of {recipe.trained_tokens:,} tokens, not {whole:,}, to fit {settings.budget}"
        print(shorter, file=sys.stderr)
    if options.dry_run:
        print("measuring the speed of this machine", file=sys.stderr)
        begun = Study.open(out) if (out / STUDY).exists() else None
        found = estimator(arms, vocab_size=size, begun=begun)(recipe, settings)
        _dry_run(found, arms, recipe, out, begun, as_json=options.json, looked_at="--data" in given_options(argv))
        return 0
    with CompareProgress() as progress:
        study = open_study(recipe, out, settings=settings, name=options.recipe, say=progress.say)
        progress.begin(study)
        run_study(study, on_progress=progress.show, say=progress.say)
    results = conclude(study)
    show_results(study.folder, results, as_json=options.json)
    if all(loss is None for arm in results["arms"].values() for loss in arm["val_loss"]):
        raise RunError("every run has diverged; lower lr, or lengthen warmup, in another folder (--out)")
    return 0


def _refuse_text(argv: list[str]) -> None:
    """Raise InputError for --data without text, before anything is measured."""
    if "--data" in given_options(argv) and not {"-h", "--help"} & set(argv):
        options, _ = parse_over_recipe(Compare, argv, _defaults, prog="prism compare", recipe=SMALLEST)
        if problems := text_problems(chosen_recipe(options)):
            raise InputError(problems)


def _parse(argv: list[str]) -> Compare:
    """The options over the named recipe; without a name, over the largest one that fits the budget and the text."""

    def over(recipe: str, defaults: Callable[[RecipeFile], Compare] = _defaults) -> Compare:
        options, file = parse_over_recipe(Compare, argv, defaults, prog="prism compare", recipe=recipe)
        options = replace(options, recipe=file.name)  # which may have been given as the path of a file
        if "--expected-sd" in given_options(argv) or _spreads_alike(chosen_recipe(options), file.recipe):
            return options
        return replace(options, study=replace(options.study, expected_sd=None))

    if recipe_argument(argv) is not None or {"-h", "--help"} & set(argv):
        return over(SMALLEST)
    candidates = []
    for name in recipe_names():
        options = over(name, _defaults_without_text)
        recipe = chosen_recipe(options)
        candidates.append(Candidate(options, recipe, options.study, vocab_size(recipe)))
    begun = candidates[0].label.out or DEFAULT_OUT
    if (begun / STUDY).exists() and (file := Study.open(begun).file).name in recipe_names():
        options = over(file.name, _defaults_without_text)
        budget = options.study.budget or file.study.budget  # so that the seeds and tokens that it picked stay
        return replace(options, out=begun, study=replace(options.study, budget=budget))
    chosen = choose_recipe(candidates)
    options = chosen.label if chosen else over(SMALLEST, _defaults_without_text)
    budget = options.study.budget or DEFAULT_BUDGET
    within = duration(parse_duration(budget))
    why = f"the largest that fits {within} and the text"
    if not chosen:
        why = f"the smallest: none fits {within} with at most {MOST_EPOCHS} epochs of the text"
    print(f"recipe: {options.recipe}, {why}", file=sys.stderr)
    return replace(options, out=options.out or DEFAULT_OUT, study=replace(options.study, budget=budget))


def _what_is_left(found: Estimate, study: Study) -> str:
    done = sum(study.status(run) != "pending" for run in study.runs)
    rest = found.of_runs(found.runs - done) if found.runs > done else None
    if rest is None or rest.seconds is None:
        return f"{study.folder}: {count(done, 'run')} finished; nothing is left to train"
    return f"{study.folder}: {count(done, 'run')} finished; the rest takes about {duration(rest.seconds)}"


def _spreads_alike(recipe: Recipe, other: Recipe) -> bool:
    """Whether a spread over seeds that was measured with one of them holds for the other."""
    alike = replace(with_model(other, schedule=recipe.model.schedule), device=recipe.device)
    return recipe == alike


def _defaults(file: RecipeFile) -> Compare:
    study = from_mapping(StudySettings, file.study, where=f"recipe {file.name}: study")
    recipe = with_model(file.recipe, schedule=ModelSettings().schedule)  # the arms are the schedules
    return Compare(**recipe_options(recipe), recipe=file.name, study=study)


def _defaults_without_text(file: RecipeFile) -> Compare:
    """The text of a recipe that nobody has named is not wanted: what is not given is the embedded one."""
    options = _defaults(file)
    return replace(options, data=replace(options.data, paths=()))


def _dry_run(
    found: Estimate,
    arms: Sequence[Arm],
    recipe: Recipe,
    out: Path,
    begun: Study | None,
    *,
    as_json: bool,
    looked_at: bool,
) -> None:
    """The plan, and what stands in its way; text that was `looked_at` before is not walked again."""
    _show_plan(found, arms, recipe, out, as_json=as_json)
    if begun is not None:
        print(_what_is_left(found, begun), file=sys.stderr)
    problems = [] if looked_at else [f"warning: {problem}" for problem in text_problems(recipe)]
    for warning in (*problems, *thread_warnings(recipe.device.threads)):
        print(warning, file=sys.stderr)


def _show_plan(found: Estimate, arms: Sequence[Arm], recipe: Recipe, out: Path, *, as_json: bool) -> None:
    if as_json:
        heads = {arm.name: str(arm.schedule) for arm in arms}
        print(json.dumps(found.mapping() | {"heads": heads}))
        return
    width = max(len(arm.name) for arm in arms)
    for arm in arms:
        notes = [f"{key}={value}" for key, value in arm.settings.items()]
        notes += [arm.role] if arm.role in ("baseline", "primary") else []
        notes += [CALIBRATION[arm.role]] if arm.role in CALIBRATION else []
        print(f"{arm.name:{width}}  {arm.schedule}  {', '.join(notes)}".rstrip())
    print()
    for line in (*describe(found), *text_sentences(found)):
        print("\n  ".join(textwrap.wrap(line, 78)))
    if warning := check_disk(found, out):
        print(warning)


def show_results(folder: Path, results: dict[str, Any], *, as_json: bool) -> None:
    """The table and the verdict, and where they are kept."""
    if as_json:
        print(json.dumps(results))
        return
    console = Console(highlight=False)
    console.print()
    console.print(terminal_table(results, width=console.width))
    console.print()
    print(f"results: {folder / 'results.json'}")
    print(f"report:  {folder / 'report.html'}")
