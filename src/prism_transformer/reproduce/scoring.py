"""Zero-shot scores of every finished run of a study, on the paper's tasks, into the study's report."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..study.folder import Study
from ..study.zero_shot import finished_runs, keep_scores
from .paper import ZERO_SHOT

if TYPE_CHECKING:
    from ..evaluation.evaluate import Computation
    from ..evaluation.harness_tasks import LoadedTasks

TASKS = tuple(ZERO_SHOT["small"])
"""of the paper's table"""


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

    from ..evaluation.comparison import ScoredRun, compare_arms
    from ..evaluation.evaluate import evaluate_tasks
    from ..evaluation.loading import load
    from ..evaluation.scores import place_of

    scored: list[dict[str, ScoredRun]] = []
    places: list[Path] = []
    with open_available(folder, say) as tasks:
        if tasks is None:
            return
        for run in finished_runs(study):
            begin(f"{run.arm} seed {run.seed}")
            loaded = load(study.run_folder(run), device=how.device)
            places.append(place_of(loaded, None))
            scored.append(evaluate_tasks(loaded, tasks, how, folder=places[-1], limit=limit))
    keep_scores(study.folder, scored, places, compare_arms(scored), limit=limit)


@contextmanager
def open_available(folder: Path | None, say: Callable[[str], None]) -> Iterator["LoadedTasks | None"]:
    """The tasks whose items can be had, all at once where they all can; None where there is none, or no harness."""
    from ..evaluation.zero_shot import open_tasks

    with ExitStack() as opened:
        tasks: LoadedTasks | None = None
        with suppress(InputError):  # of all together: it does not tell which are missing
            tasks = opened.enter_context(open_tasks(TASKS, folder=folder, say=say))
        if tasks is None:
            problems = {name: _problems(name, folder) for name in TASKS}
            names = [name for name in TASKS if not problems[name]]
            say(f"zero-shot: not scored are {', '.join(name for name in TASKS if problems[name])}")
            for problem in dict.fromkeys(problem for of_task in problems.values() for problem in of_task):
                say(f"  {problem}")
            tasks = opened.enter_context(open_tasks(names, folder=folder, say=say)) if names else None
        yield tasks


def _problems(name: str, folder: Path | None) -> tuple[str, ...]:
    """Why a task cannot be scored; none where it can."""
    from ..evaluation.zero_shot import open_tasks

    try:
        with open_tasks([name], folder=folder, say=_quiet):
            return ()
    except InputError as error:
        return error.problems


def _quiet(sentence: str) -> None:
    """What is said of each task has been said of all."""


def computation(settings: Any, on_progress: Callable[[int, int], None]) -> "Computation":
    """How a recipe's device scores: in float32, as `prism eval` does."""
    from ..evaluation.evaluate import Computation
    from ..training.device import choose_device

    device = choose_device(replace(settings, dtype="float32"))
    return Computation(device=device.device, dtype="float32", autocast=device.autocast, on_progress=on_progress)
