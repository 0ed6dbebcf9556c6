"""Two or more sides timed in turns: whatever else the machine does meets all of them, and only ratios are trusted."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..training.device import Device
from .settings import TURN_SECONDS

CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
MOST_REPEATS = 100
_RESAMPLES = 10_000

Turn = Callable[[int], float]
"""Does its work so many times and says how many seconds that took."""


class Ratio(NamedTuple):
    """A ratio of speeds with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"


def waiting(device: Device) -> Callable[[], None]:
    """What returns when `device` has finished all that it was given."""
    return torch.cuda.synchronize if device.device.type == "cuda" else lambda: None


def turn_of(work: Callable[[], object], *, clock: str = "wall", wait: Callable[[], None] = lambda: None) -> Turn:
    """`work` as a turn; `wait`: that of `waiting`, where the work is a device's."""
    now = CLOCKS[clock]

    def turn(repeats: int) -> float:
        wait()
        start = now()
        for _ in range(repeats):
            work()
        wait()
        return now() - start

    return turn


def repeats_of(turns: Sequence[Turn], *, seconds: float = TURN_SECONDS) -> int:
    """Repeats with which the fastest side takes about `seconds` a turn. Also the warm-up: each side works twice."""
    for turn in turns:
        turn(1)
    fastest = min(turn(1) for turn in turns)
    return max(1, min(MOST_REPEATS, math.ceil(seconds / max(fastest, 1e-9))))


def interleave(turns: Sequence[Turn], *, rounds: int, repeats: int) -> npt.NDArray[np.float64]:
    """[sides, rounds] seconds of one repeat. Each round begins with another side; one round of warm-up is dropped."""
    times = np.empty((len(turns), rounds + 1))
    order = list(range(len(turns)))
    for index in range(rounds + 1):
        for side in order:
            times[side, index] = turns[side](repeats) / repeats
        order = [*order[1:], order[0]] if len(order) > 2 else order[::-1]
    return times[:, 1:]


def speed_ratio(first: npt.ArrayLike, second: npt.ArrayLike) -> Ratio:
    """How many times as fast the second side is, from the seconds of both, round by round.

    The median over rounds of the log ratio within a round; its 95 % interval is the bootstrap's, over rounds.
    """
    return median_ratio(np.log(np.asarray(first) / np.asarray(second)))


def median_ratio(log_ratios: npt.ArrayLike) -> Ratio:
    """The median of log ratios, one a round, as a ratio with its 95 % bootstrap interval."""
    values = np.asarray(log_ratios, dtype=np.float64)
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, values.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Ratio(math.exp(np.median(values)), math.exp(low), math.exp(high))


def seconds_of(action: Callable[[], object], seconds: float) -> float:
    """The median of repetitions that take about `seconds` together, two at least."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < seconds:
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
