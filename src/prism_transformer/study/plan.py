"""What a study is asked to do, and the order of its runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import InputError
from ..training.recipe import Recipe
from .arms import Arm


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What is compared, how often, and how it is judged."""

    arms: tuple[str, ...] = ("uniform", "prism")
    """Schedules to compare: uniform, uniform-N, sweep (all uniform-N), prism, reversed, shuffled-K, linear,
    heads x layers like 3x2,12x2, or NAME=TEXT; with @rope_width=base or @attention_scale=base.
    Uniform is always there."""
    primary: str | None = None
    """The one arm that the verdict is about; default: prism, or the first arm besides uniform."""
    seeds: int = 5
    """Seeds for each arm; 3 are the least that show anything, and weak."""
    lr: tuple[float, ...] = ()
    """Peak learning rates: every arm is trained at each. Default: the recipe's one."""
    calibrate: bool = False
    """Also train uniform with 20 % fewer tokens, which must be found, and from another initial seed, which must not."""
    confidence: float = 0.95
    """Confidence of the intervals."""
    equivalence: float = 0.001
    """Differences within this part of the baseline's loss are called equivalent."""
    expected_sd: float | None = None
    """Spread over seeds of a paired difference, nats per token, where an earlier study measured it.
    What a plan can detect follows from it."""
    budget: str | None = None
    """Time for the whole study, like 2h or 30min: seeds and tokens are picked to fit it."""
    jobs: int | None = None
    """Runs side by side; default: one for each GPU, or as many as fit on the CPU's cores."""

    def check(self) -> None:
        """Raise InputError with every setting that cannot be."""
        problems = []
        if self.seeds < 1:
            problems.append(f"seeds={self.seeds}: a study needs at least 1 seed, and 3 to show anything; give 5")
        problems += [f"lr={rate} must be above 0" for rate in self.lr if not (math.isfinite(rate) and rate > 0)]
        if len(set(self.lr)) != len(self.lr):
            problems.append(f"lr={list(self.lr)} has a rate twice")
        if not 0.5 <= self.confidence < 1:
            problems.append(f"confidence={self.confidence} is not between 0.5 and 1; the usual is 0.95")
        if not 0 <= self.equivalence < 1:
            problems.append(f"equivalence={self.equivalence} is no part of the loss; the default is 0.001")
        if self.jobs is not None and self.jobs < 1:
            problems.append(f"jobs={self.jobs} must be at least 1")
        if problems:
            raise InputError(problems)


class RunKey(NamedTuple):
    """One run of a study."""

    arm: str
    seed: int
    lr: float


def order_runs(arms: Sequence[str], seeds: Sequence[int], rates: Sequence[float]) -> list[RunKey]:
    """Every run in the order of training: seed by seed, and within a seed the arms rotated by its number.

    So an interruption leaves complete pairs, and a machine that slows down over the hours slows all arms alike.
    """
    runs = []
    for number, seed in enumerate(seeds):
        turn = number % len(arms)
        runs += [RunKey(arm, seed, rate) for arm in (*arms[turn:], *arms[:turn]) for rate in rates]
    return runs


def planned_runs(recipe: Recipe, settings: StudySettings, arms: Sequence[Arm]) -> list[RunKey]:
    """Every run of a study, in the order of training; its seeds begin with the recipe's."""
    first, rates = recipe.training.seed, settings.lr or (recipe.optimizer.lr,)
    return order_runs([arm.name for arm in arms], range(first, first + settings.seeds), rates)


def planned_tokens(arms: Sequence[Arm], recipe: Recipe, runs: Sequence[RunKey]) -> int:
    """Tokens of training of all `runs`."""
    by_name = {arm.name: arm for arm in arms}
    return sum(by_name[run.arm].recipe(recipe, seed=run.seed, lr=run.lr).trained_tokens for run in runs)
