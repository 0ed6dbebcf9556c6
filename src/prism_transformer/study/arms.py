"""Arms: what a study compares, from the words of the command line.

An arm is `uniform`, `uniform-N`, `sweep` (several), `prism`, `reversed`, `shuffled-K`, `linear`, any schedule text, or
NAME=TEXT; it may carry settings that leave a uniform model unchanged: prism@rope_width=base.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..design.families import expand_arm
from ..errors import InputError
from ..model.head_schedule import HeadSchedule, ScheduleError
from ..settings import nearest
from ..training.recipe import ModelSettings, Recipe
from .measured import Role

BASELINE = "uniform"
FEWER_TOKENS = "fewer-tokens"
OTHER_SEED = "other-seed"
FEWER_TOKENS_SHARE = 0.8
OTHER_SEED_OFFSET = 1_000_003
"""Added to the seed for the initial weights of the null arm; no study has that many seeds."""

LONGEST_NAME = 100
"""An arm's name is a folder's; beyond 255 bytes file systems have none."""

SETTINGS: Mapping[str, tuple[str, ...]] = {"rope_width": ("head", "base"), "attention_scale": ("head", "base")}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One schedule with its settings."""

    name: str
    schedule: HeadSchedule
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Model settings that the arm changes besides its heads."""
    role: Role = "secondary"

    def recipe(self, recipe: Recipe, *, seed: int, lr: float) -> Recipe:
        """The recipe of one run of this arm."""
        training, optimizer = recipe.training, replace(recipe.optimizer, lr=lr)
        tokens, init_seed = training.tokens, training.init_seed
        if self.role == "calibration_less":
            tokens = int(recipe.steps * FEWER_TOKENS_SHARE) * training.tokens_per_step
        if self.role == "calibration_null":
            init_seed = seed + OTHER_SEED_OFFSET
        model = replace(recipe.model, schedule=str(self.schedule), **self.settings)
        training = replace(training, tokens=tokens, seed=seed, init_seed=init_seed)
        return replace(recipe, model=model, training=training, optimizer=optimizer)


def parse_arms(
    texts: Sequence[str], model: ModelSettings, *, primary: str | None = None, calibrate: bool = False
) -> list[Arm]:
    """The arms of a study: uniform first, then those of `texts`, then the two of the calibration.

    Raises InputError with every arm that is unknown, not legal or there twice, and for a primary that is no arm.
    """
    problems: list[str] = []
    arms = [Arm(name=BASELINE, schedule=_expand(BASELINE, model)[BASELINE], role="baseline")]
    for text in texts:
        try:
            found = _parse(text, model)
        except (InputError, ScheduleError) as error:
            problems += error.problems
            continue
        if text.strip() == BASELINE or text.split("@")[0].strip() == "sweep":  # the sweep contains the baseline
            found = [arm for arm in found if arm.schedule != arms[0].schedule]
        arms += found
    problems += _duplicates(arms)
    names = [arm.name for arm in arms[1:]]
    if not names and not calibrate and not problems:
        problems.append("a study needs an arm besides uniform; for example --arms uniform prism")
    if primary is not None and primary not in names:
        known = nearest(primary, names)
        problems.append(f"primary arm {primary!r} is not an arm besides the baseline; {known}, or add it to the arms")
    if problems:
        raise InputError(problems)
    chosen = primary or ("prism" if "prism" in names else names[0] if names else None)
    arms = [replace(arm, role="primary") if arm.name == chosen else arm for arm in arms]
    return arms + (_calibration(arms[0].schedule) if calibrate else [])


def is_arm_name(name: str) -> bool:
    """Whether a name is one that `parse_arms` gives, so that it is safe as a folder's."""
    return len(name) <= LONGEST_NAME and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._,@=-]*", name) is not None


def _calibration(uniform: HeadSchedule) -> list[Arm]:
    return [
        Arm(name=FEWER_TOKENS, schedule=uniform, role="calibration_less"),
        Arm(name=OTHER_SEED, schedule=uniform, role="calibration_null"),
    ]


def _parse(text: str, model: ModelSettings) -> list[Arm]:
    """One argument: [NAME=]TEXT[@key=value…]."""
    body, *pairs = text.strip().split("@")
    settings = _parse_settings(text, pairs)
    found = _expand(body, model)
    _refuse_other_base(text, found.values(), settings, model)
    if reserved := {FEWER_TOKENS, OTHER_SEED} & found.keys():
        raise InputError(f"arm name {reserved.pop()!r} belongs to the calibration; choose another")
    suffix = "" if "=" in body else "".join(f"@{key}={value}" for key, value in settings.items())
    return [Arm(name=f"{name}{suffix}", schedule=s, settings=settings) for name, s in found.items()]


def _refuse_other_base(
    text: str, schedules: Iterable[HeadSchedule], settings: Mapping[str, str], model: ModelSettings
) -> None:
    """Raise InputError for KEY=base over schedules whose base heads are not the model's.

    A model takes the largest count of its own schedule for the base, so the setting would not mean what it says: in a
    uniform-N nothing at all.
    """
    keys = [key for key, value in settings.items() if value == "base"]
    others = [str(schedule) for schedule in schedules if schedule.base_heads != model.heads]
    if keys and others:
        raise InputError(
            f"arm {text!r}: {' and '.join(keys)}=base means the base head dim, {model.d_model // model.heads} of "
            f"heads={model.heads}, which must be the largest head count of the schedule; it is not in "
            f"{' and '.join(others)}: leave the setting out"
        )


def _expand(text: str, model: ModelSettings) -> dict[str, HeadSchedule]:
    return expand_arm(text, n_layers=model.layers, d_model=model.d_model, base_heads=model.heads)


def _parse_settings(text: str, pairs: Iterable[str]) -> dict[str, str]:
    settings, problems = {}, []
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in SETTINGS:
            problems.append(f"arm {text!r}: no setting {key!r}; {nearest(key, SETTINGS)}")
        elif value not in SETTINGS[key]:
            problems.append(f"arm {text!r}: {key}={value!r}; choose one of: {', '.join(SETTINGS[key])}")
        else:
            settings[key] = value
    if problems:
        raise InputError(problems)
    return settings


def _duplicates(arms: Sequence[Arm]) -> list[str]:
    """Two arms of one name, or with the same heads and settings: the comparison would be with itself."""
    problems: list[str] = []
    seen: dict[object, str] = {}
    names: set[str] = set()
    for arm in arms:
        if not is_arm_name(arm.name):
            problems.append(
                f"arm name {arm.name[:20]}… has {len(arm.name)} characters, {LONGEST_NAME} at most: NAME=TEXT"
            )
        changes = sorted(item for item in arm.settings.items() if item[1] != "head")
        identity = (arm.schedule, () if arm.schedule.is_uniform else tuple(changes))
        if arm.name.lower() in names:  # lower: the folders of some systems do not tell the case
            problems.append(f"two arms are named {arm.name!r}; name one of them: NAME=TEXT")
        elif identity in seen:
            problems.append(
                f"arms {seen[identity]!r} and {arm.name!r} have the same heads ({arm.schedule}) and the same settings; "
                "leave one out"
            )
        names.add(arm.name.lower())
        seen.setdefault(identity, arm.name)
    return problems
