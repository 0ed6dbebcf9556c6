"""`compare`: from text and arms to a verdict."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..data import Corpus, prepare
from ..errors import InputError
from ..files import DATA, STUDY, refuse_foreign
from ..training.recipe import Recipe
from ..training.text import check_data, data_sentences
from .context import report_context
from .folder import Study
from .plan import StudySettings
from .planning import check_plan
from .report import write_report
from .results import analyse, write_results
from .runner import Progress, run_study


def compare(
    recipe: Recipe,
    out: Path | str,
    *,
    settings: StudySettings | None = None,
    name: str = "study",
    on_progress: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train every arm with every seed in the study folder `out`, judge them, and return the content of results.json.

    Args:
        recipe: the model, text and training that all arms share.
        out: the study folder; the same call again goes on with it, more seeds or arms extend it.
        settings: arms, seeds and rules of judgement.
        name: what the report calls the study.
        on_progress: called about twice a second while runs are trained.
        say: called with sentences for the user.

    Raises:
        InputError: settings, text, device or folder do not fit.
        RunError: a disk is full. A run whose loss is not finite is counted as diverged instead.
        Stopped: SIGINT, SIGTERM or SIGHUP; finished runs are safe, the others saved.
    """
    study = open_study(recipe, Path(out), settings=settings or StudySettings(), name=name, say=say)
    run_study(study, on_progress=on_progress, say=say)
    return conclude(study)


def open_study(recipe: Recipe, out: Path, *, settings: StudySettings, name: str, say: Callable[[str], None]) -> Study:
    """Check everything that can be checked before the first run, prepare the text, and write study.yaml."""
    arms = check_plan(recipe, settings)
    refuse_foreign(out, mark=STUDY, beside=(DATA,))
    corpus = prepared_text(recipe, out / DATA, mark=STUDY, say=say)
    for sentence in data_sentences(recipe, corpus):
        say(sentence)
    return Study.create(out, name=name, settings=settings, recipe=recipe, arms=arms, corpus=corpus)


def prepared_text(recipe: Recipe, folder: Path, *, mark: str, say: Callable[[str], None]) -> Corpus:
    """The text, long enough. Of text that cannot be used nothing is left, so that the corrected command can begin.

    `folder` is the data/ of a folder in which the file `mark` tells that work has begun.
    """
    study, data_is_new, study_is_new = folder.parent, not folder.exists(), not folder.parent.exists()
    try:
        corpus = prepare(recipe.data, folder, say=say)
        check_data(recipe, corpus)
    except InputError:
        if data_is_new and not (study / mark).exists():  # which another process may have written meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            if study_is_new:
                with suppress(OSError):
                    study.rmdir()
        raise
    return corpus


def conclude(study: Study) -> dict[str, Any]:
    """Judge what is there: write results.json and report.html, and return the results."""
    study = Study.open(study.folder)  # another process may have extended it
    runs = [study.result(run) for run in study.runs]
    if all(run.status != "pending" for run in runs):
        study = study.looked()
    results = analyse(study.arm_infos(), runs, study.endpoint())
    write_results(study.folder, results)
    write_report(study.folder, results, report_context(study, runs, results))
    return results
