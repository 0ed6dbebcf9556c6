"""What a study measured: the input of its statistics, and the rules that the input has to keep."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..errors import InputError
from ..settings import nearest

Status = Literal["done", "diverged", "missing", "pending"]
Role = Literal["baseline", "primary", "secondary", "calibration_less", "calibration_null"]


class Evaluation(NamedTuple):
    """One evaluation on the way of a run."""

    step: int
    tokens: int
    seconds: float
    """of training, since the start of the run"""
    val_loss: float
    is_whole: bool = True
    """on all of the validation split, and not on a sample of it"""


class Documents(NamedTuple):
    """What each document of the validation split contributes to the final loss of a run."""

    nats: Sequence[float]
    tokens: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One training of one arm with one seed, as the statistics see it."""

    arm: str
    seed: int
    status: Status
    """done; diverged (its loss is not finite); missing (lost: it will not come); pending (still to be run)"""
    val_loss: float | None
    """final loss on the whole validation split, nats per token; None unless done"""
    tokens: int
    """tokens trained on"""
    curve: Sequence[Evaluation] = ()
    """in order"""
    tokens_per_second: float | None = None
    lr: float | None = None
    """peak learning rate, in a study of several"""
    source: str = ""
    """the file that the figures are from, relative to the study"""
    documents: Documents | None = None
    """the final loss by validation document, where it is known"""

    @property
    def on_the_way(self) -> list[Evaluation]:
        """The evaluations that read the same text as the first one did.

        The last one of a run reads the whole split. Where those before it read a sample, its loss is another text's and
        does not lie on one curve with theirs.
        """
        return [at for at in self.curve if at.is_whole == self.curve[0].is_whole]


@dataclass(frozen=True, kw_only=True)
class ArmInfo:
    """One arm of a study."""

    name: str
    heads: tuple[int, ...]
    """heads per layer, first layer first; () where unknown (runs of another trainer)"""
    role: Role
    settings: Mapping[str, Any] = field(default_factory=dict)
    """what the arm sets besides its heads, e.g. {"rope_width": "base"}"""

    @property
    def is_calibration(self) -> bool:
        return self.role.startswith("calibration")

    @property
    def is_uniform(self) -> bool:
        """One head count everywhere and nothing else set: a uniform-N that a schedule has to beat."""
        return len(set(self.heads)) == 1 and not self.settings and not self.is_calibration


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What was fixed before the first run: the final loss on the whole validation split, judged by these rules."""

    baseline: str
    primary: str | None
    """the one arm that the verdict is about; None: no verdict, every arm is secondary"""
    planned_seeds: int
    """seeds of the newest look"""
    confidence: float = 0.95
    equivalence: float = 0.001
    """differences within this share of the baseline's loss do not matter"""
    looks: Sequence[int] = ()
    """the seed counts at which results were looked at; each extension of the seeds adds one"""

    @property
    def look(self) -> int:
        """Which look this is, 1 for the planned one; the newest counts whether or not `looks` holds it yet."""
        return len({*self.looks, self.planned_seeds})


def check(arms: Sequence[ArmInfo], runs: Sequence[RunResult], endpoint: Endpoint) -> None:
    """Raise `InputError` with every reason why these runs cannot be compared."""
    problems = [*_arm_problems(arms, endpoint), *_run_problems(arms, runs), *_token_problems(arms, runs, endpoint)]
    if endpoint.planned_seeds < 1:
        problems.append(f"planned_seeds={endpoint.planned_seeds}: a study needs at least 1 seed; give 5")
    if not 0.5 <= endpoint.confidence < 1:
        problems.append(f"confidence={endpoint.confidence} is not between 0.5 and 1; the usual is 0.95")
    if not 0 <= endpoint.equivalence < 1:
        problems.append(f"equivalence={endpoint.equivalence} is no share of the loss; the default is 0.001")
    if any(look > endpoint.planned_seeds for look in endpoint.looks):
        problems.append(f"looks={list(endpoint.looks)} has more seeds than planned_seeds={endpoint.planned_seeds}")
    if problems:
        raise InputError(problems)


def usable(run: RunResult) -> bool:
    return run.status == "done" and run.val_loss is not None and math.isfinite(run.val_loss)


def _arm_problems(arms: Sequence[ArmInfo], endpoint: Endpoint) -> list[str]:
    names = [arm.name for arm in arms]
    problems = [f"arm {name!r} is there {count} times" for name, count in Counter(names).items() if count > 1]
    wanted = {"baseline": endpoint.baseline}
    if endpoint.primary is not None:
        wanted["primary"] = endpoint.primary
    problems += [
        f"{what} {name!r} is not an arm; {nearest(name, names)}" for what, name in wanted.items() if name not in names
    ]
    if endpoint.primary == endpoint.baseline:
        problems.append(f"primary and baseline are both {endpoint.baseline!r}: an arm differs from itself by nothing")
    for arm in arms:
        if arm.is_calibration and arm.name in (endpoint.baseline, endpoint.primary):
            problems.append(
                f"arm {arm.name!r} calibrates the study and can be neither its baseline nor its primary arm"
            )
    return problems


def _run_problems(arms: Sequence[ArmInfo], runs: Sequence[RunResult]) -> list[str]:
    names = [arm.name for arm in arms]
    unknown = sorted({run.arm for run in runs} - set(names))
    problems = [f"runs of {name!r}, which is not an arm; {nearest(name, names)}" for name in unknown]
    counts = Counter((run.arm, run.seed, run.lr) for run in runs)
    problems += [f"arm {arm!r}, seed {seed} has {n} runs; keep one" for (arm, seed, _), n in counts.items() if n > 1]
    return problems


def _token_problems(arms: Sequence[ArmInfo], runs: Sequence[RunResult], endpoint: Endpoint) -> list[str]:
    """Every finished run has the baseline's tokens; only the calibration with fewer has its own."""
    fewer = {arm.name for arm in arms if arm.role == "calibration_less"}
    expected = Counter(run.tokens for run in runs if run.arm == endpoint.baseline and usable(run)).most_common(1)
    if not expected:
        return []
    tokens = expected[0][0]
    return [
        f"arm {run.arm!r}, seed {run.seed} was trained on {run.tokens:,} tokens and the baseline on {tokens:,}; "
        "only equal tokens compare"
        for run in runs
        if usable(run) and run.arm not in fewer and run.tokens != tokens
    ]
