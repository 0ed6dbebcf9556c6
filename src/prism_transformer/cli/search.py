"""`prism search`: which schedule should I take, for my model and text, within my budget?"""

import json
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import InputError
from ..search.begin import Priced, check, describe, join_search, open_search, price
from ..search.run import conclude, require_optuna, run_search
from ..search.settings import SearchSettings
from ..study.planning import text_size
from ..training.recipe import ModelSettings, Recipe, with_model, with_training
from ..training.recipe_files import RecipeFile
from .options import Switch, given_options
from .progress import SearchProgress
from .recipes import RecipeOptions, chosen_recipe, parse_over_recipe, recipe_options, vocab_size

if TYPE_CHECKING:
    from ..search.search import Search


@dataclass(frozen=True, kw_only=True)
class SearchOptions(RecipeOptions):
    """Find a head schedule: train many on paired seeds, drop those that are worse.

    The best is then compared on text that no choice has seen.
    """

    recipe: str = "demo"
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file; its tokens are those of a full run."""
    out: Path | None = None
    """The search folder; default: searches/RECIPE. The same command again goes on."""
    join: str | None = None
    """Work with a search that others have begun: its folder, or the URL of its storage (then with --out)."""
    storage: str | None = None
    """URL of an Optuna storage that other machines share, like postgresql+psycopg://user@host/database.
    Default: a journal file in the search folder."""
    name: str = "search"
    """Name of the search in its storage."""
    jobs: int | None = None
    """Workers here; default: one for each GPU, or as many as fit on the CPU's cores."""
    dry_run: Switch = False
    """Only say what would be tried and what it takes."""
    json: Switch = False
    """Print the results (or the plan of a dry run) as JSON."""
    search: SearchSettings = field(default_factory=SearchSettings)


def main(argv: list[str]) -> int:
    options, _ = parse_over_recipe(SearchOptions, argv, _defaults, prog="prism search", recipe="demo")
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"--jobs {options.jobs} must be at least 1")
    if options.join is not None:
        _refuse_settings(argv, options.join)
        require_optuna()
        with SearchProgress() as progress:
            found = join_search(
                options.join,
                storage=options.storage,
                name=options.name,
                out=options.out,
                data=options.data.paths,
                say=progress.say,
            )
            return _run(found, options, progress)
    if options.model.schedule != ModelSettings().schedule:
        raise InputError(f"--schedule {options.model.schedule}: a search chooses the schedule; leave it out")
    recipe = chosen_recipe(options)
    check(recipe, options.search)
    if options.dry_run:
        _show_plan(recipe, options, needs_text="--data" in given_options(argv))
        return 0
    require_optuna()
    with SearchProgress() as progress:
        found = open_search(
            recipe,
            options.out or Path("searches") / options.recipe,
            settings=options.search,
            storage=options.storage,
            name=options.name,
            jobs=options.jobs,
            say=progress.say,
        )
        return _run(found, options, progress)


def _run(found: "Search", options: SearchOptions, progress: SearchProgress) -> int:
    progress.begin(found)
    run_search(found, storage=options.storage, jobs=options.jobs, on_progress=progress.show, say=progress.say)
    results = conclude(found)
    show_results(found.folder, results, as_json=options.json)
    return 0


def _defaults(file: RecipeFile) -> SearchOptions:
    recipe = with_model(file.recipe, schedule=ModelSettings().schedule)
    recipe = with_training(recipe, evaluations=1)  # a search reads the loss at the end of a run alone
    return SearchOptions(**recipe_options(recipe), recipe=file.name)


_BESIDE_FOLDER = ("--join", "--storage", "--jobs", "--json")
_BESIDE_STORAGE = (*_BESIDE_FOLDER, "--name", "--out", "--data")


def _refuse_settings(argv: list[str], join: str) -> None:
    """Raise InputError for settings beside --join: they are those of the search that is joined."""
    fitting = _BESIDE_STORAGE if "://" in join else _BESIDE_FOLDER
    if astray := [option for option in given_options(argv) if option not in fitting]:
        has = "has its settings" if "://" in join else "by its folder has its settings, name and text"
        raise InputError(f"{' '.join(astray)}: a search that is joined {has}; leave them out")


def _show_plan(recipe: Recipe, options: SearchOptions, *, needs_text: bool) -> None:
    size = vocab_size(recipe)
    text, problems = text_size(recipe, size)
    if needs_text and problems:
        raise InputError(problems)
    validation = text.get("validation")
    priced = price(recipe, options.search, vocab_size=size, validation_tokens=validation, jobs=options.jobs)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(priced.mapping()))
        return
    _print_schedules(priced)
    for line in describe(priced, options.search):
        print("\n  ".join(textwrap.wrap(line, 78)))


MOST_LISTED = 20


def _print_schedules(priced: Priced) -> None:
    """The first schedules, and how many more there are."""
    listed = list(priced.candidates)[:MOST_LISTED]
    width = max(len(each.name) for each in listed)
    for each in listed:
        heads = str(each.schedule)
        notes = "" if each.in_space else "  reference, outside of the constraints"
        print(f"{each.name:{width}}  {heads if heads != each.name else ''}{notes}".rstrip())
    if (more := len(priced.candidates) - len(listed)) > 0:
        print(f"and {more:,} more (--json has all)")
    print()


def show_results(folder: Path, results: dict[str, Any], *, as_json: bool) -> None:
    """The ranking, the final comparison and the recommendation, and where they are kept."""
    if as_json:
        print(json.dumps(results))
        return
    from ..search.table import terminal_table

    console = Console(highlight=False)
    console.print()
    console.print(terminal_table(results))
    console.print()
    print(f"results: {folder / 'results.json'}")
    print(f"picture: {folder / 'space.svg'}")
