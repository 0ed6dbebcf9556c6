"""`search_schedules`: from a model, a text and a budget to a schedule."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, RunError, Stopped
from ..study.plan import StudySettings
from ..study.runner import crowding, gpu_count, job_count
from ..study.workers import Workers
from ..training.recipe import Recipe
from ..wording import count
from .begin import open_search
from .settings import SearchSettings

if TYPE_CHECKING:
    from .search import Search, State

MODULE = "prism_transformer.search.worker"


def search_schedules(
    recipe: Recipe,
    out: Path | str,
    *,
    settings: SearchSettings | None = None,
    storage: str | None = None,
    name: str = "search",
    jobs: int | None = None,
    on_progress: Callable[["State"], None] = lambda state: None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Search the space of head schedules in the folder `out`, and return the content of results.json.

    Args:
        recipe: model, text and training of every run; its schedule is ignored, its tokens are those of a full run.
        out: the search folder; the same call again goes on with it.
        settings: the space, the budget and the rules.
        storage: URL of an Optuna storage that workers on other machines share; default: a journal file in `out`.
        name: of the search in its storage.
        jobs: workers of this process; default: one for each GPU, or as many as fit on the CPU's cores.
        on_progress: called about twice a second with where the search stands.
        say: called with sentences for the user.

    Raises:
        InputError: settings, text, device, storage or folder do not fit, or the budget is too small.
        RunError: a disk is full, the storage went away, or every run diverged.
        Stopped: SIGINT, SIGTERM or SIGHUP; finished runs are safe, the others saved.
    """
    require_optuna()
    search = open_search(
        recipe, Path(out), settings=settings or SearchSettings(), storage=storage, name=name, jobs=jobs, say=say
    )
    run_search(search, storage=storage, jobs=jobs, on_progress=on_progress, say=say)
    return conclude(search)


def require_optuna() -> None:
    """Raise InputError where the extra is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("a search needs Optuna: pip install 'prism-transformer[search]'") from None


def run_search(
    search: "Search",
    *,
    storage: str | None = None,
    jobs: int | None = None,
    on_progress: Callable[["State"], None] = lambda state: None,
    say: Callable[[str], None] = print,
) -> None:
    """Train what is left, in `jobs` processes beside those that others have. Raises as `search_schedules`."""
    state = search.state()
    if state.is_finished:
        say(f"the search in {search.folder} is finished: nothing is left to train")
        return
    if ended := len(state.ended):
        say(f"{count(ended, 'run')} finished before: going on")
    device = search.plan.recipe.device
    processes = job_count(StudySettings(jobs=jobs), device)
    if warning := crowding(processes, device):
        say(warning)
    gpus = gpu_count() if device.device in ("auto", "cuda") else 0
    with _storage_variable(storage), Workers(search.folder, gpus=gpus, module=MODULE) as workers:
        workers.watch(processes, lambda: on_progress(search.state()), say)
    state = search.state()
    safe = f"{len(state.ended)} finished runs are safe; the same command goes on"
    if workers.stopped_by is not None:
        raise Stopped(f"stopped: {safe}", workers.stopped_by)
    if not state.is_finished:
        raise workers.failure(safe)


@contextmanager
def _storage_variable(storage: str | None) -> Iterator[None]:
    """The storage's URL for the workers, whose password belongs neither into a file nor into a list of processes."""
    from .search import STORAGE_VARIABLE

    if storage is None:
        yield
        return
    before = os.environ.get(STORAGE_VARIABLE)
    os.environ[STORAGE_VARIABLE] = storage
    try:
        yield
    finally:
        if before is None:
            del os.environ[STORAGE_VARIABLE]
        else:
            os.environ[STORAGE_VARIABLE] = before


def conclude(search: "Search") -> dict[str, Any]:
    """Judge what is there: write results.json and the picture, and return the results."""
    from .figure import draw_space
    from .results import analyse, write_results

    results = analyse(search, search.state())
    if not results["ranking"]:
        raise RunError("no round has ended, so there is nothing to judge yet; the same command goes on")
    write_results(search, results)
    draw_space(results, search.folder)
    return results
