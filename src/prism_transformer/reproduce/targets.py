"""What of the paper can be reproduced: each target is a study, and what is measured on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..settings import from_mapping, nearest
from ..study.plan import StudySettings
from ..training.recipe_files import RecipeFile, load_recipe

REHEARSAL = "rehearsal"
SCALES = ("small", "medium", "large", REHEARSAL)
CAPTION = "A rehearsal: numbers at this size are no evidence about the paper's."


@dataclass(frozen=True, kw_only=True)
class Target:
    """One part of the paper."""

    name: str
    help: str
    study: str
    """The folder of its study below that of the scale; targets of one study share its runs."""
    recipe: str | None = None
    """The recipe whose arms it trains; None: uniform and prism, those of the scale itself."""


TARGETS = {
    target.name: target
    for target in (
        Target(name="table2", help="loss, speed and zero-shot scores, uniform against prism", study="table2"),
        Target(name="ablation", help="eight schedules", study="ablation", recipe="paper/ablation"),
        Target(name="attention", help="how far each layer looks, on table2's runs", study="table2"),
        Target(
            name="controls",
            help="what the paper lacks: every uniform-N, reversed, shuffled, two settings of wide heads",
            study="controls",
            recipe="paper/controls",
        ),
    )
}

ALSO = {"table3": "table2"}
"""Other names. Zero-shot scores, a table of their own in the paper, stand below the losses of the runs they are of."""


def find_targets(names: Sequence[str], scale: str) -> list[Target]:
    """The targets by name, "all" meaning each. Raises InputError for unknown ones and what a scale does not have."""
    known = [*TARGETS, *ALSO, "all"]
    problems = [f"no target {name!r}; {nearest(name, known)}" for name in names if name not in known]
    if scale not in SCALES:
        problems.append(f"no scale {scale!r}; {nearest(scale, SCALES)}")
    if not names:
        problems.append(f"name what to reproduce: {', '.join(known)}")
    wanted = TARGETS if "all" in names else {ALSO.get(name, name) for name in names}
    chosen = [target for name, target in TARGETS.items() if name in wanted]
    if scale in ("medium", "large"):
        if "ablation" in names:
            problems.append("the paper's ablation is of the small model; give --scale small or rehearsal")
        chosen = [target for target in chosen if target.name != "ablation"]
    if problems:
        raise InputError(problems)
    return chosen


def load_scale(scale: str) -> RecipeFile:
    """The recipe of a scale."""
    return load_recipe(f"paper/{scale}" if scale == REHEARSAL else scale)


def study_settings(target: Target, scale: RecipeFile, *, seeds: int | None, jobs: int | None) -> StudySettings:
    """Arms of the target, seeds of the scale unless `seeds` says otherwise."""
    stated: dict[str, Any] = dict(scale.study)
    if target.recipe is not None:
        own = load_recipe(target.recipe).study
        stated |= {key: own[key] for key in ("arms", "primary")}
    settings = from_mapping(StudySettings, stated, where=f"study of {target.name}")
    return replace(settings, seeds=seeds or settings.seeds, jobs=jobs)
