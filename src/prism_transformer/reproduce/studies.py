"""The studies of one scale: which runs each has, which are finished somewhere, and how one study takes another's run.

    OUT/SCALE/text/  OUT/SCALE/table2/  OUT/SCALE/ablation/  OUT/SCALE/controls/

A run that two studies have in common is trained once: the second one takes it over, by hard links where the volume has
them. So every study folder is whole by itself, for `prism report` and for whoever copies it.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data import is_prepared
from ..errors import InputError
from ..files import STUDY
from ..settings import to_mapping
from ..study.arms import Arm
from ..study.folder import Study
from ..study.plan import RunKey, StudySettings, planned_runs
from ..study.planning import check_plan
from ..training.recipe import Recipe
from ..training.recipe_files import RecipeFile
from .targets import Target, study_settings

TEXT = "text"
_LOCKS = shutil.ignore_patterns(".lock*", "*.tmp")

Identity = str


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A study that is begun or not yet."""

    name: str
    folder: Path
    recipe: Recipe
    settings: StudySettings
    arms: Sequence[Arm]
    targets: tuple[Target, ...]
    """Those that are measured on it."""

    @property
    def runs(self) -> list[RunKey]:
        return planned_runs(self.recipe, self.settings, self.arms)

    def run_recipe(self, run: RunKey) -> Recipe:
        arm = next(arm for arm in self.arms if arm.name == run.arm)
        return arm.recipe(self.recipe, seed=run.seed, lr=run.lr)


def plan_studies(
    targets: Sequence[Target], scale: RecipeFile, recipe: Recipe, folder: Path, *, seeds: int | None, jobs: int | None
) -> list[PlannedStudy]:
    """One study for each folder of `targets`, at `folder`. Raises InputError with everything that cannot be."""
    if problems := [f"seeds={seeds}: at least 1 is needed"] if seeds is not None and seeds < 1 else []:
        raise InputError(problems)
    studies = []
    for name in dict.fromkeys(target.study for target in targets):
        own = tuple(target for target in targets if target.study == name)
        settings = study_settings(own[0], scale, seeds=_seeds(folder / name, seeds), jobs=jobs)
        studies.append(
            PlannedStudy(
                name=name,
                folder=folder / name,
                recipe=recipe,
                settings=settings,
                arms=check_plan(recipe, settings),
                targets=own,
            )
        )
    return studies


def _seeds(folder: Path, asked: int | None) -> int | None:
    """As asked, or as many as a study that is begun has: the command without --seeds goes on with it."""
    if asked is None and (folder / STUDY).exists():
        return Study.open(folder).file.study.seeds
    return asked


def text_of(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe that reads what was prepared in `folder` once for all studies, unless it names a prepared folder."""
    paths = recipe.data.paths
    if len(paths) == 1 and is_prepared(Path(paths[0]).expanduser()):
        return recipe
    return replace(recipe, data=replace(recipe.data, paths=(str(folder / TEXT),)))


def identity(recipe: Recipe) -> Identity:
    """What makes two runs the same, beside the text, which studies compare by its fingerprint."""
    values: dict[str, Any] = to_mapping(recipe)
    values.pop("data")
    return json.dumps(values, sort_keys=True)


def begun(folder: Path) -> Iterator[Study]:
    """The studies below `folder`."""
    for path in sorted(folder.glob(f"*/{STUDY}")):
        yield Study.open(path.parent)


def finished(folder: Path) -> set[Identity]:
    """The runs that are finished in any study below `folder`."""
    return {
        identity(study.run_recipe(run))
        for study in begun(folder)
        for run in study.runs
        if study.status(run) in ("done", "diverged")
    }


def take_over(study: Study) -> int:
    """Give `study` the runs that its neighbours have finished and it has not begun; returns how many."""
    wanted = {identity(study.run_recipe(run)): run for run in study.runs if not study.run_folder(run).exists()}
    taken = 0
    for other in begun(study.folder.parent):
        if other.folder == study.folder or other.file.data_fingerprint != study.file.data_fingerprint:
            continue
        for run in other.runs:
            key = identity(other.run_recipe(run))
            if key in wanted and other.status(run) in ("done", "diverged"):
                taken += _copy(other.run_folder(run), study.run_folder(wanted.pop(key)))
    return taken


def _copy(source: Path, target: Path) -> bool:
    """Whole or not at all; False where another process was faster."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.copytree(source, unfinished, copy_function=_link, ignore=_LOCKS)
        with suppress(OSError):  # the folder is there by now, and not empty
            unfinished.rename(target)
            return True
        return False
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _link(source: str, target: str) -> str:
    """Of files that nobody writes to any more."""
    try:
        os.link(source, target)
    except OSError:  # another volume, or one without hard links
        shutil.copy2(source, target)
    return target
