"""`prism compare`: does a schedule beat uniform heads, on my text, within my budget, by how much, how sure?"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from ..errors import InputError
from ..settings import from_mapping
from ..study.arms import parse_arms
from ..study.compare import conclude, open_study
from ..study.plan import StudySettings, order_runs, planned_tokens
from ..study.runner import run_study
from ..study.table import terminal_table
from ..training.recipe import ModelSettings, OptimizerSettings, Recipe, RecipeFile
from .progress import CompareProgress
from .recipes import RecipeOptions, chosen_recipe, parse_over_recipe, recipe_options, vocab_size


@dataclass(frozen=True, kw_only=True)
class Compare(RecipeOptions):
    """Compare head schedules: train each with several seeds, and judge the paired differences."""

    recipe: str = "laptop"
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file."""
    out: Path | None = None
    """The study folder; default: studies/RECIPE. The same command again goes on; more seeds or arms extend it."""
    dry_run: bool = False
    """Only say what would be trained and what it takes."""
    json: bool = False
    """Print the results (or the plan of a dry run) as JSON."""
    study: StudySettings = field(default_factory=StudySettings)
    optimizer: Annotated[OptimizerSettings, tyro.conf.Suppress] = field(default_factory=OptimizerSettings)


def main(argv: list[str]) -> int:
    options, file = parse_over_recipe(Compare, argv, _defaults, prog="prism compare", recipe="laptop")
    if options.model.schedule != ModelSettings().schedule:
        raise InputError(f"--schedule {options.model.schedule}: a comparison takes its schedules as --arms")
    recipe = chosen_recipe(options)
    out = options.out or Path("studies") / file.name
    if options.dry_run:
        return _dry_run(options, recipe)
    with CompareProgress(quiet=options.json) as progress:
        study = open_study(recipe, out, settings=options.study, name=file.name, say=progress.say)
        progress.begin(planned_tokens(study.arms, recipe, study.runs), len(study.runs))
        run_study(study, on_progress=progress.show)
    show_results(study.folder, conclude(study), as_json=options.json)
    return 0


def _defaults(file: RecipeFile) -> Compare:
    study = from_mapping(StudySettings, file.study, where=f"recipe {file.name}: study")
    return Compare(**recipe_options(file.recipe), recipe=file.name, study=study)


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


def _dry_run(options: Compare, recipe: Recipe) -> int:
    options.study.check()
    recipe.check()
    settings = options.study
    arms = parse_arms(settings.arms, recipe.model, primary=settings.primary, calibrate=settings.calibrate)
    rates = settings.lr or (recipe.optimizer.lr,)
    runs = order_runs([arm.name for arm in arms], range(settings.seeds), rates)
    tokens, parameters = planned_tokens(arms, recipe, runs), recipe.model.cost(vocab_size(recipe)).parameters
    if options.json:
        heads = {arm.name: str(arm.schedule) for arm in arms}
        print(json.dumps({"arms": heads, "runs": len(runs), "tokens": tokens, "parameters": parameters}))
        return 0
    print(f"{parameters / 1e6:.1f}M parameters in every arm")
    for arm in arms:
        print(f"  {arm.name:12} {arm.schedule}  {' '.join(f'{k}={v}' for k, v in arm.settings.items())}".rstrip())
    print(f"{len(runs)} runs: {len(arms)} arms x {settings.seeds} seeds x {len(rates)} learning rates")
    print(f"{tokens:,} tokens of training")
    return 0
