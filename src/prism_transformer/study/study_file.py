"""study.yaml: what was fixed before the first run of a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml

from ..errors import InputError
from ..files import write_text
from ..model.head_schedule import HeadSchedule
from ..settings import from_mapping, read_yaml, to_mapping
from ..training.recipe import Recipe
from .arms import SETTINGS, Arm, is_arm_name
from .measured import Role
from .plan import StudySettings

FORMAT = "prism-transformer study 1"


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The content of study.yaml."""

    format: str = FORMAT
    name: str
    created: str
    data: str
    """The folder of the prepared text, relative to the study folder where it lies in it."""
    data_fingerprint: str
    study: StudySettings
    looks: tuple[int, ...] = ()
    """The seed counts at which results were there to be looked at: judged whole, or extended after a pair had ended."""
    recipe: Recipe


def write_study_file(path: Path, file: StudyFile, arms: Sequence[Arm]) -> None:
    """Write study.yaml: the settings, and the arms with their schedules."""
    stated = {arm.name: {"heads": str(arm.schedule), "role": arm.role, "settings": dict(arm.settings)} for arm in arms}
    content = to_mapping(file) | {"arms": stated}
    write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=False))


def read_study_file(path: Path) -> tuple[StudyFile, list[Arm]]:
    """What `write_study_file` wrote. Raises InputError where it was damaged since."""
    values = read_yaml(path)
    if values.get("format") != FORMAT:
        raise InputError(f"{path}: format {values.get('format')!r} is not known; {FORMAT!r} is")
    arms = values.pop("arms", None)
    if missing := {"study", "recipe"} - values.keys():  # whose settings all have defaults
        raise InputError(f"{path}: {' and '.join(sorted(missing))} is missing; restore the file")
    file = from_mapping(StudyFile, values, where=str(path))
    try:
        file.study.check()
        file.recipe.check()
    except InputError as error:
        raise InputError([f"{path}: {problem}" for problem in error.problems]) from None
    return file, _read_arms(arms, file.recipe, path)


def _read_arms(values: Any, recipe: Recipe, path: Path) -> list[Arm]:
    """The arms of study.yaml. Raises InputError for what `Study.create` does not write."""
    if not isinstance(values, Mapping):
        raise InputError(f"{path} has no arms; restore the file")
    arms, problems = [], []
    for name, value in values.items():
        try:
            arms.append(_read_arm(name, value, recipe))
        except (TypeError, KeyError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            problems.append(f"{path}: arms.{name}: {what}; restore the file")
    roles = [arm.role for arm in arms]
    if not problems and (roles.count("baseline") != 1 or roles.count("primary") > 1):
        problems.append(
            f"{path}: arms has {roles.count('baseline')} baselines and {roles.count('primary')} primary arms"
        )
    if problems:
        raise InputError(problems)
    return arms


def _read_arm(name: Any, value: Any, recipe: Recipe) -> Arm:
    if not isinstance(name, str) or not is_arm_name(name):
        raise ValueError("no name of an arm")
    if value["role"] not in get_args(Role):
        raise ValueError(f"role {value['role']!r} is none of {', '.join(get_args(Role))}")
    for key, choice in dict(value["settings"]).items():
        if choice not in SETTINGS.get(key, ()):
            raise ValueError(f"settings: {key}={choice!r} is none of an arm")
    schedule = HeadSchedule.parse(value["heads"], d_model=recipe.model.d_model, n_layers=recipe.model.layers)
    return Arm(name=name, schedule=schedule, role=value["role"], settings=dict(value["settings"]))
