"""A budget of time, tokens or runs, and what a run takes of it."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import InputError
from ..study.estimate import EVALUATION_COST, duration, parse_duration

Unit = Literal["seconds", "tokens", "runs"]

_COUNT = re.compile(r"(?P<number>\d[\d_,]*(?:\.\d+)?(?:e\d+)?)\s*(?P<factor>[kMGB]?)\s*(?P<unit>tokens?|runs?)", re.I)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


@dataclass(frozen=True)
class Budget:
    """What a search may take."""

    unit: Unit
    amount: float

    @classmethod
    def parse(cls, text: str | None) -> "Budget":
        """ "2h", "30min", "50M tokens", "40 runs"; None: no limit, counted in time. Raises InputError."""
        if text is None:
            return cls("seconds", math.inf)
        if found := _COUNT.fullmatch(text.strip()):
            number = float(re.sub("[_,]", "", found["number"])) * _FACTORS[found["factor"].lower()]
            unit: Unit = "tokens" if found["unit"].lower().startswith("token") else "runs"
            if number < 1:
                raise InputError(f"budget={text!r} is less than one {unit.removesuffix('s')}")
            return cls(unit, math.floor(number))
        try:
            return cls("seconds", parse_duration(text))
        except InputError:
            raise InputError(
                f"budget={text!r} is neither time nor a number of tokens or runs; write it like 2h, '50M tokens' or "
                "'40 runs'"
            ) from None

    def words(self, amount: float | None = None) -> str:
        """An amount of it, by default all, for people."""
        value = self.amount if amount is None else amount
        if self.unit == "seconds":
            return duration(value) if math.isfinite(value) else "no limit"
        return f"{value:,.0f} {self.unit if round(value) != 1 else self.unit.removesuffix('s')}"


@dataclass(frozen=True)
class Prices:
    """What runs take of a budget."""

    unit: Unit
    speed: float
    """Tokens of training a second, of all workers together; a token that is only evaluated counts a third."""
    evaluated_tokens: int
    """of one run"""

    def of(self, tokens: int, runs: int = 1) -> float:
        """What `runs` runs of so many tokens take, in the unit of the budget."""
        if self.unit == "runs":
            return runs
        if self.unit == "tokens":
            return runs * tokens
        return runs * self.work(tokens) / self.speed

    def work(self, tokens: int) -> float:
        """Tokens of training that take as long as a whole run."""
        return tokens + EVALUATION_COST * self.evaluated_tokens


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of the intervals (start, end) was going on: pauses do not count, nor workers."""
    total, until = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
