"""The best of many equal schedules looks better than it is, and the final comparison does not."""

import numpy as np
import pytest

from prism_transformer.search.elimination import judge_round
from prism_transformer.search.results import final_comparison
from prism_transformer.search.verdict import recommended
from prism_transformer.study.statistics import paired_t

SEARCHES, SCHEDULES, SEEDS = 600, 40, 5
NOISE = 3 * np.sqrt(0.05 * 0.95 / SEARCHES)
"""three standard errors of a simulated 5 %: .027"""


def losses(rng: np.random.Generator, names: list[str]) -> dict[str, dict[int, float | None]]:
    """Equal schedules: what a seed shares, and each run's own noise; nothing else."""
    shared = rng.normal(scale=0.01, size=SEEDS)
    return {name: dict(enumerate((4 + shared + rng.normal(scale=0.003, size=SEEDS)).tolist())) for name in names}


def test_the_final_interval_covers_the_truth_although_the_winner_looks_better_than_it_is() -> None:
    rng = np.random.default_rng(11)
    names = ["uniform", *(f"s{k}" for k in range(1, SCHEDULES))]
    seemed, naive, final, said = [], 0, 0, 0
    for _ in range(SEARCHES):
        search = losses(rng, names)
        winner = judge_round(search, number=1, baseline="uniform", eligible=names[1:], confidence=0.95).leader
        assert winner is not None
        gains = [float(search[winner][seed] or 0) - float(search["uniform"][seed] or 0) for seed in range(SEEDS)]
        interval = paired_t(gains, 0.95)
        seemed.append(float(interval.mean))
        naive += bool(interval.low < 0 < interval.high)
        fresh = losses(rng, ["uniform", winner])
        entry = final_comparison(
            fresh, chosen=winner, planned=SEEDS, confidence=0.95, equivalence=0.0, uniforms=["uniform"]
        )["differences"][winner]
        final += bool(entry["low"] < 0 < entry["high"])
        said += entry["decision"] != "cannot_tell"
    assert np.mean(seemed) < -0.002  # the gain that the search shows, of schedules that are equal
    assert naive / SEARCHES < 0.85
    assert abs(final / SEARCHES - 0.95) < NOISE
    assert said / SEARCHES <= 0.05 + NOISE


@pytest.mark.parametrize("chosen", ["a", "uniform"])
def test_of_equal_schedules_another_than_uniform_is_recommended_in_one_of_twenty_searches_at_the_most(
    chosen: str,
) -> None:
    """Whoever of the four of a final comparison was chosen for it."""
    rng = np.random.default_rng(12)
    names, left_uniform = ["uniform", "a", "b", "c"], 0
    for _ in range(SEARCHES):
        final = final_comparison(
            losses(rng, names), chosen=chosen, planned=SEEDS, confidence=0.95, equivalence=0.0, uniforms=["uniform"]
        )
        left_uniform += recommended(chosen, final, names) != "uniform"
    assert 0 < left_uniform / SEARCHES <= 0.05 + NOISE
