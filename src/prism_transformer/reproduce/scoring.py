"""Zero-shot scores of every finished run of a study, on the paper's tasks, into the study's report."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..study.folder import Study
from ..study.zero_shot import summarise, write_zero_shot

if TYPE_CHECKING:
    from ..evaluation.evaluate import Computation
    from ..evaluation.harness_tasks import LoadedTasks

TASKS = ("hellaswag", "piqa", "winogrande", "blimp", "arc_easy", "wikitext")
"""of the paper's table"""


def label(limit: int | None) -> str:
    """How scores on the first items of each task are named in zero_shot.json."""
    from ..evaluation.scores import file_name

    return file_name("", {"limit": limit, "shots_asked": None})


def score_study(
    study: Study,
    how: "Computation",
    *,
    folder: Path | None,
    limit: int | None,
    say: Callable[[str], None],
    begin: Callable[[str], None],
) -> None:
    """Score the runs that are finished; what was kept of them before is not computed again.

    Items are those of `folder`, of the hub's cache or of the hub; a task whose items are nowhere is left out, and said.
    """
    from torch import nn

    from ..evaluation.comparison import ScoredRun, compare_arms
    from ..evaluation.evaluate import evaluate_tasks
    from ..evaluation.loading import load
    from ..evaluation.scores import place_of

    order = [arm.name for arm in study.arms]
    runs = [run for run in study.runs if study.status(run) == "done"]
    scored: list[dict[str, ScoredRun]] = []
    sources: list[str] = []
    with open_available(folder, say) as tasks:
        if tasks is None:
            return
        for run in sorted(runs, key=lambda run: (order.index(run.arm), run.seed)):
            begin(f"{run.arm} seed {run.seed}")
            loaded = load(study.run_folder(run))
            nn.Module.to(loaded.model, how.device)
            place = place_of(loaded, None)
            scored.append(evaluate_tasks(loaded, tasks, how, folder=place, limit=limit))
            sources.append(str(place))
    write_zero_shot(study.folder, label(limit), summarise(scored, sources, compare_arms(scored)))


@contextmanager
def open_available(folder: Path | None, say: Callable[[str], None]) -> Iterator["LoadedTasks | None"]:
    """The tasks whose items can be had, all at once where they all can; None where there is none, or no harness."""
    from ..evaluation.zero_shot import open_tasks

    with ExitStack() as opened:
        tasks: LoadedTasks | None = None
        problems: tuple[str, ...] = ()
        try:
            tasks = opened.enter_context(open_tasks(TASKS, folder=folder, say=say))
        except InputError as error:
            problems = error.problems
        if tasks is None:
            names = [name for name in TASKS if _opens(name, folder)] if len(problems) < len(TASKS) else []
            say(f"zero-shot: not scored are {', '.join(name for name in TASKS if name not in names)}")
            for problem in problems:
                say(f"  {problem}")
            tasks = opened.enter_context(open_tasks(names, folder=folder, say=say)) if names else None
        yield tasks


def _opens(name: str, folder: Path | None) -> bool:
    from ..evaluation.zero_shot import open_tasks

    try:
        with open_tasks([name], folder=folder, say=_quiet):
            return True
    except InputError:
        return False


def _quiet(sentence: str) -> None:
    """What is said of each task has been said of all."""


def computation(settings: Any, on_progress: Callable[[int, int], None]) -> "Computation":
    """How a recipe's device scores: in float32, as `prism eval` does."""
    from ..evaluation.evaluate import Computation
    from ..training.device import choose_device

    device = choose_device(replace(settings, dtype="float32"))
    return Computation(device=device.device, dtype="float32", autocast=device.autocast, on_progress=on_progress)
