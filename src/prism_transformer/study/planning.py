"""The plan of one study: measured on this machine, fitted to its budget, and kept beside its runs."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..data import Corpus, DataSettings, Split
from ..errors import InputError
from ..files import STUDY
from ..training.recipe import Recipe, with_training
from .arms import Arm, parse_arms
from .budget import Candidate, Estimator, fit_budget, largest_that_fits, split_sizes, text_tokens
from .estimate import Estimate, Speed, estimate, parse_duration
from .folder import Study
from .plan import StudySettings
from .runner import job_count

DEFAULT_BUDGET = "30min"


def check_plan(recipe: Recipe, settings: StudySettings) -> list[Arm]:
    """The arms, once everything that needs no text is known to be right. Raises InputError with every problem."""
    problems: list[str] = []
    arms: list[Arm] = []
    for check in (settings.check, recipe.check, lambda: _check_device(recipe)):
        try:
            check()
        except InputError as error:
            problems += error.problems
    try:
        arms = parse_arms(settings.arms, recipe.model, primary=settings.primary, calibrate=settings.calibrate)
    except InputError as error:
        problems += [problem for problem in error.problems if problem not in problems]
    if settings.calibrate and recipe.steps == 1:
        problems.append("calibrate needs 2 steps or more: 20 % fewer than 1 are none; give more tokens")
    if settings.calibrate and recipe.model.from_run is not None:
        problems.append(
            f"calibrate needs initial weights that are drawn, and --from {recipe.model.from_run} gives every run the "
            "same: another initial seed would be the same run again; leave one of the two out"
        )
    if problems:
        raise InputError(problems)
    return arms


def _check_device(recipe: Recipe) -> None:
    """Raise InputError for a device that is not here."""
    if recipe.device.device not in ("auto", "cpu"):  # which are everywhere
        from ..training.device import choose_device  # imports torch

        choose_device(recipe.device)


def text_problems(recipe: Recipe) -> tuple[str, ...]:
    """Why the text of a recipe cannot be read; a plan can do without it."""
    return text_size(recipe, recipe.data.vocab_size)[1]


def text_size(recipe: Recipe, vocab_size: int) -> tuple[dict[Split, int], tuple[str, ...]]:
    """The tokens of each split, about, and why they are not known. Looks at every file of the text."""
    try:
        return text_tokens(recipe.data, vocab_size), ()
    except InputError as error:
        return {}, error.problems


def estimator(arms: Sequence[Arm], *, vocab_size: int, begun: Study | None = None) -> Estimator:
    """Estimates for one recipe's model; its speed is measured, and its text looked at, at the first one.

    `begun` is the study that is to be extended, whose next look finds less than a first one.
    """

    measured: list[Speed] = []
    sizes: dict[DataSettings, dict[Split, int]] = {}

    def of(recipe: Recipe, settings: StudySettings) -> Estimate:
        if not measured:
            from .speed import training_speed  # imports torch: only where something is measured

            measured.append(training_speed(recipe, vocab_size))
        if recipe.data not in sizes:
            sizes[recipe.data], _ = text_size(recipe, vocab_size)
        return estimate(
            recipe,
            arms,
            settings,
            vocab_size=vocab_size,
            text=sizes[recipe.data],
            jobs=job_count(settings, recipe.device),
            speed=measured[0],
            look=len({*begun.looks_before(settings.seeds), settings.seeds}) if begun else 1,
        )

    return of


def plan_of(study: Study, corpus: Corpus | None) -> Estimate:
    """The plan of a study that has begun; its speed is that of its first steps, where there are some."""
    recipe = study.file.recipe
    found = estimate(
        recipe,
        study.arms,
        study.file.study,
        vocab_size=corpus.vocab_size if corpus else recipe.data.vocab_size,
        text=split_sizes(corpus) if corpus else {},
        jobs=job_count(study.file.study, recipe.device),
        speed=None,
        look=study.endpoint().look,
    )
    speed = first_speed(study)
    return found.at(speed) if speed else found


def first_speed(study: Study) -> Speed | None:
    """The speed at the beginning of the runs that were trained first; None before that is known.

    The very first line of a run, one step, also counts what happens once; the one after it does not.
    """
    jobs = job_count(study.file.study, study.file.recipe.device)
    of_runs = (study.records(run) for run in study.runs[:jobs])
    speeds = [[r["tokens_per_second"] for r in records if r.get("tokens_per_second")][1:2] for records in of_runs]
    found = [speed for of_run in speeds for speed in of_run]
    return Speed(statistics.mean(found), "by the first steps") if len(found) == len(speeds) else None


def apply_budget(
    recipe: Recipe, settings: StudySettings, out: Path, *, vocab_size: int, fixed: Sequence[str]
) -> tuple[Recipe, StudySettings]:
    """The recipe and settings with the seeds and tokens that the budget allows; those of a study that has begun stay.

    `fixed` names what the user has chosen: "seeds", "tokens".
    """
    if settings.budget is None:
        return recipe, settings
    budget = parse_duration(settings.budget)
    if (out / STUDY).exists():
        begun = Study.open(out).file
        if begun.study.budget == settings.budget:
            seeds = settings.seeds if "seeds" in fixed else begun.study.seeds
            tokens = recipe.training.tokens if "tokens" in fixed else begun.recipe.training.tokens
            return with_training(recipe, tokens=tokens), replace(settings, seeds=seeds)
    arms = check_plan(recipe, settings)
    return fit_budget(recipe, settings, budget, estimator(arms, vocab_size=vocab_size), fixed=fixed)


def choose_recipe(candidates: Sequence[Candidate]) -> Candidate | None:
    """The largest candidate whose plan fits its budget (30 minutes where none is given).

    One that the options make impossible does not fit; where they do so to all, raises InputError with the first's
    problems.
    """
    from .speed import matrix_peak  # imports torch: only where something is measured

    possible: list[Candidate] = []
    errors: list[InputError] = []
    for each in candidates:
        try:
            check_plan(each.recipe, each.settings)
            possible.append(each)
        except InputError as error:
            errors.append(error)
    if not possible:
        raise errors[0]
    ordered = sorted(possible, key=lambda each: -each.recipe.model.cost(each.vocab_size).parameters)
    budget = parse_duration(candidates[0].settings.budget or DEFAULT_BUDGET)

    def of(candidate: Candidate) -> Estimator:
        arms = check_plan(candidate.recipe, candidate.settings)
        return estimator(arms, vocab_size=candidate.vocab_size)

    return largest_that_fits(ordered, budget, of, peak=matrix_peak(candidates[0].recipe.device))
