"""What a study will cost and what it can show, before anything is spent."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..cost import short
from ..data import Split
from ..errors import InputError
from ..files import free_bytes, size_text
from ..training.recipe import Recipe
from ..training.saving import checkpoint_bytes, kept_checkpoints
from ..training.text import MOST_EPOCHS
from ..wording import count
from .arms import Arm
from .plan import StudySettings, planned_runs, planned_tokens
from .statistics import detectable_difference, look_alpha

EVALUATION_COST = 1 / 3
"""of a token of training: the forward pass without the backward pass"""

START_SECONDS = 10.0
"""for a process to import torch and open the text"""

SpeedSource = Literal["measured here", "by the first steps", "from the matrix products alone"]
"""Where a speed is from; no training reaches the last one."""


class Speed(NamedTuple):
    """Tokens per second of training in one process."""

    tokens_per_second: float
    source: SpeedSource


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The plan of a study in figures."""

    arms: int
    seeds: int
    rates: int
    runs: int
    jobs: int
    parameters: int
    """of the model, the same in every arm"""
    tokens_per_run: int
    tokens: int
    """of training, all runs together"""
    evaluated_tokens: int
    speed: float | None
    """tokens per second of training in one process; None: not measured"""
    speed_source: SpeedSource | None
    disk_bytes: int
    """of all checkpoints, at the most"""
    epochs: float | None
    """how often a run reads the training split; None: its size is not known"""
    detectable: float | None
    """smallest difference, nats per token, that the planned look finds in 4 of 5 studies; None: spread unknown"""

    @property
    def seconds(self) -> float | None:
        """From start to verdict, where the speed is known."""
        if self.speed is None:
            return None
        side_by_side = min(self.jobs, self.runs)
        longest_queue = math.ceil(self.runs / side_by_side) / self.runs
        return START_SECONDS + self.work / self.speed * longest_queue

    @property
    def work(self) -> float:
        """Tokens of training that take as long as all runs with their evaluations."""
        return self.tokens + EVALUATION_COST * self.evaluated_tokens

    @property
    def training_seconds(self) -> float | None:
        """Of all runs together, evaluations not counted."""
        return None if self.speed is None else self.tokens / self.speed

    def at(self, speed: Speed) -> "Estimate":
        """The same plan at another speed."""
        return replace(self, speed=speed.tokens_per_second, speed_source=speed.source)

    def of_runs(self, runs: int) -> "Estimate":
        """The figures of so many runs, each with the tokens of this plan's runs."""
        return replace(
            self,
            runs=runs,
            tokens=runs * self.tokens_per_run,
            evaluated_tokens=runs * (self.evaluated_tokens // self.runs),
            disk_bytes=runs * (self.disk_bytes // self.runs),
        )

    def mapping(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": self.seconds}


def estimate(
    recipe: Recipe,
    arms: Sequence[Arm],
    settings: StudySettings,
    *,
    vocab_size: int,
    text: Mapping[Split, int],
    jobs: int,
    speed: Speed | None,
    look: int = 1,
) -> Estimate:
    """The figures of a study of `arms`. `text` has the tokens of each split, and nothing where they are not known."""
    runs = planned_runs(recipe, settings, arms)
    parameters = recipe.model.cost(vocab_size).parameters
    return Estimate(
        arms=len(arms),
        seeds=settings.seeds,
        rates=len(settings.lr) or 1,
        runs=len(runs),
        jobs=jobs,
        parameters=parameters,
        tokens_per_run=recipe.trained_tokens,
        tokens=planned_tokens(arms, recipe, runs),
        evaluated_tokens=len(runs) * evaluated_tokens(recipe, text.get("validation")),
        speed=speed.tokens_per_second if speed else None,
        speed_source=speed.source if speed else None,
        disk_bytes=len(runs) * kept_checkpoints(recipe) * checkpoint_bytes(recipe, vocab_size),
        epochs=recipe.trained_tokens / text["train"] if text.get("train") else None,
        detectable=_detectable(settings, look),
    )


def evaluated_tokens(recipe: Recipe, validation_tokens: int | None) -> int:
    """Tokens of all evaluations of one run; of a validation split that is not known, one evaluation's."""
    on_the_way = recipe.training.evaluation_tokens
    whole = validation_tokens if validation_tokens is not None else on_the_way
    return (recipe.training.evaluations - 1) * min(on_the_way, whole) + whole


def _detectable(settings: StudySettings, look: int) -> float | None:
    if settings.expected_sd is None or settings.seeds < 2:
        return None
    confidence = 1 - look_alpha(look, settings.confidence)
    return detectable_difference(settings.expected_sd, settings.seeds, confidence=confidence)


def check_disk(found: Estimate, folder: Path) -> str | None:
    """A warning where the volume of `folder` has less room than the checkpoints may take."""
    free = free_bytes(folder)
    if free >= found.disk_bytes:
        return None
    return (
        f"warning: the checkpoints may take {size_text(found.disk_bytes)}, but {folder} has {size_text(free)} free; "
        "lower --keep, or use another volume"
    )


def duration(seconds: float) -> str:
    """40 s, 7 min, 2 h 13 min, 3 days, 12 years."""
    minutes, days = round(seconds / 60), round(seconds / 86400)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{days} days" if days < 730 else f"{days / 365:,.0f} years"


def parse_duration(text: str) -> float:
    """Seconds of "2h", "30min", "1.5 h", "1h30m" or "90s". Raises InputError."""
    units = {"h": 3600, "hour": 3600, "hours": 3600, "m": 60, "min": 60, "minutes": 60, "s": 1, "sec": 1, "d": 86400}
    found = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.lower())
    rest = re.sub(r"(\d+(?:\.\d+)?)\s*([a-z]+)", "", text.lower()).strip()
    known = not rest and all(unit in units for _, unit in found)
    seconds = sum(float(number) * units[unit] for number, unit in found) if known else 0.0
    if seconds <= 0:
        raise InputError(f"budget={text!r} is no time; write it like 2h, 30min or 1h30m")
    return seconds


def describe(found: Estimate) -> list[str]:
    """The plan in sentences."""
    rates = f" x {found.rates} learning rates" if found.rates > 1 else ""
    parts = f"{count(found.arms, 'arm')} x {count(found.seeds, 'seed')}{rates}"
    lines = [
        f"model: {short(found.parameters)} parameters in every arm",
        f"runs: {found.runs} ({parts}), {found.jobs} side by side",
        f"tokens: {found.tokens_per_run:,} a run, {found.tokens:,} in all",
    ]
    if time := time_sentence(found):
        lines.append(time)
    lines.append(f"disk: {size_text(found.disk_bytes)} for checkpoints at the most")
    if found.detectable is not None:
        lines.append(
            f"can find: a difference of {found.detectable:.3f} nats or more, in 4 of 5 such studies "
            f"(from a spread that an earlier study measured)"
        )
    elif found.seeds >= 2:
        lines.append("can find: not known for this text before its first seeds; the report says it")
    if found.seeds < 3:
        lines.append(f"warning: {count(found.seeds, 'seed')} cannot show anything; 3 are the least")
    elif found.seeds == 3:
        lines.append("3 seeds are the least, and weak; 5 are better")
    return lines


def text_sentences(found: Estimate) -> list[str]:
    """How often the text is read, as far as its size is known; a run that begins says it itself."""
    if found.epochs is None:
        return []
    lines = [f"text: a run reads it about {found.epochs:,.1f} times"]
    if found.epochs > MOST_EPOCHS:
        lines.append(f"warning: beyond {MOST_EPOCHS} epochs a repeated text teaches less than a new one")
    return lines


def time_sentence(found: Estimate) -> str | None:
    """How long the plan takes; None where no speed is known."""
    if found.seconds is None or found.speed is None:
        return None
    time = f"{about(found.speed_source)} {duration(found.seconds)}"
    return f"time: {time}, at {found.speed:,.0f} tokens/s a process, {found.speed_source}"


def about(source: SpeedSource | None) -> str:
    """What stands before a time that was reckoned with such a speed."""
    return "more than" if source == "from the matrix products alone" else "about"
