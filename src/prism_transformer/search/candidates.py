"""The schedules that a search begins with: the references that the end needs, and the space or a draw from it."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from ..design.families import expand_arm
from ..design.space import ScheduleSpace
from ..errors import InputError
from ..model.head_schedule import HeadSchedule, ScheduleError

BASELINE = "uniform"
PRISM = "prism"


@dataclass(frozen=True)
class Candidate:
    """A schedule with its place in the picture."""

    name: str
    """A family's name, or the schedule's text."""
    schedule: HeadSchedule
    family: str
    in_space: bool
    """False for a reference that the constraints exclude: it is measured, and never chosen."""

    @property
    def is_uniform(self) -> bool:
        return self.schedule.is_uniform


def references(space: ScheduleSpace) -> list[Candidate]:
    """uniform first, then the wider uniforms and prism where the model has one."""
    sizes = {"n_layers": space.n_layers, "d_model": space.d_model, "base_heads": space.base_heads}
    found = dict(expand_arm(BASELINE, **sizes))
    for name, schedule in reversed(expand_arm("sweep", **sizes).items()):
        if not (space.max_head_dim and schedule.head_dims[0] > space.max_head_dim):
            found[name] = schedule
    with suppress(InputError, ScheduleError):  # of a model that has no legal widening by that rule
        found |= expand_arm(PRISM, **sizes)
    unique: dict[HeadSchedule, str] = {}
    for name, schedule in found.items():
        unique.setdefault(schedule, name)
    return [_candidate(name, schedule, space) for schedule, name in unique.items()]


def choose(space: ScheduleSpace, count: int | None, *, draw: int) -> list[Candidate]:
    """The references and schedules of the space, `count` together: all where None, else a uniform draw of the rest."""
    found = references(space)
    known = {each.schedule for each in found}
    if count is None or count >= total(space):
        others = [schedule for schedule in space if schedule not in known]
    else:
        wanted = max(0, count - len(found))
        drawn = space.sample(min(space.count, wanted + len(found)), seed=draw)
        others = [schedule for schedule in drawn if schedule not in known][:wanted]
    return found + [_candidate(str(schedule), schedule, space) for schedule in others]


def total(space: ScheduleSpace) -> int:
    """Schedules of the space and references outside of it."""
    return space.count + sum(not each.in_space for each in references(space))


def widening(schedule: HeadSchedule, base_heads: int) -> float:
    """The part of the heads that a schedule does without: 0 for uniform, 1/2 for half the heads in every layer."""
    return 1 - sum(schedule.heads) / (schedule.n_layers * base_heads)


def _candidate(name: str, schedule: HeadSchedule, space: ScheduleSpace) -> Candidate:
    return Candidate(name, schedule, _family(name, schedule), schedule in space)


def _family(name: str, schedule: HeadSchedule) -> str:
    if schedule.is_uniform:
        return "uniform"
    if name == PRISM:
        return PRISM
    if any(after < before for before, after in pairwise(schedule.heads)):
        return "falling"
    steps = len(schedule.phases) - 1
    return "1 step" if steps == 1 else f"{steps} steps" if steps < 4 else "4 or more steps"


SHAPES = ("uniform", PRISM, "1 step", "2 steps", "3 steps", "4 or more steps", "falling")
