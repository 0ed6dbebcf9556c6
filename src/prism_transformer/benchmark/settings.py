"""What a benchmark times, and how long: plain settings, read without torch."""

from dataclasses import dataclass
from typing import Literal

Work = Literal["training", "prefill", "decode"]
TURN_SECONDS = 0.3
"""A turn repeats its work for about so long, so that the clock and the switch of sides do not count."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is timed, and how long."""

    work: tuple[Work, ...] = ("training", "prefill", "decode")
    """What is timed: a training step of one micro-batch, reading a prompt of one context, writing tokens."""
    rounds: int = 10
    """Rounds in which every arm has its turn; one more is dropped as warm-up."""
    turn_seconds: float = TURN_SECONDS
    """About how long one turn takes."""
    memory: bool = True
    """Measure the peak memory of a training step too."""

    def problems(self) -> list[str]:
        problems = []
        if self.rounds < 3:
            problems.append(f"--rounds {self.rounds} must be at least 3: an interval takes several")
        if not self.turn_seconds > 0:
            problems.append(f"--turn-seconds {self.turn_seconds} must be above 0")
        if not self.work:
            problems.append("--work needs at least one of training, prefill and decode")
        if repeated := sorted({work for work in self.work if self.work.count(work) > 1}):
            problems.append(f"--work names {', '.join(repeated)} twice; once is enough")
        return problems
