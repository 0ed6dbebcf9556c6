"""Turns and ratios, on a clock that the test holds."""

import math

import numpy as np
import pytest

from prism_transformer.benchmark import timing
from prism_transformer.benchmark.timing import interleave, median_ratio, repeats_of, seconds_of, speed_ratio, turn_of


class Clock:
    def __init__(self):
        self.now = 0.0

    def work(self, seconds):
        def run():
            self.now += seconds

        return run


@pytest.fixture
def clock(monkeypatch) -> Clock:
    held = Clock()
    monkeypatch.setattr(timing, "CLOCKS", {"wall": lambda: held.now})
    return held


def test_a_turn_counts_all_of_its_repeats_and_the_wait_for_the_device(clock):
    waited = []

    def wait():
        waited.append(clock.now)
        clock.now += 0.5

    turn = turn_of(clock.work(2.0), wait=wait)
    assert turn(3) == pytest.approx(6.5)  # the first wait is before the clock starts
    assert waited == [0.0, 6.5]


def test_sides_take_turns_and_the_first_round_is_dropped():
    order = []

    def side(name, seconds):
        def turn(repeats):
            order.append(name)
            return repeats * (seconds if order.count(name) > 1 else 100 * seconds)

        return turn

    times = interleave([side("a", 1.0), side("b", 2.0)], rounds=3, repeats=4)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert times.tolist() == [[1.0] * 3, [2.0] * 3]


def test_three_sides_each_begin_a_round():
    order = []
    sides = [lambda repeats, name=name: order.append(name) or 1.0 for name in "abc"]
    interleave(sides, rounds=2, repeats=1)
    assert "".join(order) == "abcbcacab"


def test_repeats_fill_the_turn_of_the_fastest(clock):
    turns = [turn_of(clock.work(seconds)) for seconds in (0.04, 0.1)]
    assert repeats_of(turns, seconds=0.3) == 8
    assert repeats_of([turn_of(clock.work(9.0))], seconds=0.3) == 1
    assert repeats_of([turn_of(clock.work(1e-9))], seconds=0.3) == timing.MOST_REPEATS


def test_a_ratio_of_rounds_that_drift_together():
    """The machine slows down tenfold over the rounds; within each round the second side is 1.25 times as fast."""
    first = np.geomspace(1, 10, 12)
    found = speed_ratio(first, first / 1.25)
    assert found == pytest.approx((1.25, 1.25, 1.25)) and str(found) == "1.250 [1.250, 1.250]"


def test_an_outlier_moves_neither_the_ratio_nor_much_of_its_interval():
    found = median_ratio([math.log(2.0)] * 19 + [math.log(50.0)])
    assert found.ratio == pytest.approx(2.0) and found.high == pytest.approx(2.0)
    spread = median_ratio(np.log(np.linspace(0.8, 1.2, 21)))
    assert spread.low < 1 < spread.high and spread.low > 0.8 and spread.high < 1.2


def test_seconds_of_is_a_median(monkeypatch):
    now, takes = [0.0], iter([0.1, 9.0, 0.2, 0.3, 0.4])
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def work():
        now[0] += next(takes)

    assert seconds_of(work, 9.9) == pytest.approx(0.3)  # of .1, 9, .2, .3 and .4
