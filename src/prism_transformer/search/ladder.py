"""What is trained next: rounds of growing length over the schedules that are left, then the final comparison.

Every round gives each schedule that is left the same few new seeds. Those that are shown to be worse are dropped. The
others go on to twice the length where the budget carries all of them there; else they get more seeds at this length,
which tells more of them apart; and where it carries neither, the search has ended. So nothing is dropped for want of
budget, and a budget too small ends in a larger set of schedules that cannot be told apart.

A grid is one round at full length. What the final comparison takes is laid aside from the beginning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import InputError
from ..study.plan import order_runs
from ..training.recipe import Recipe
from .budget import Budget, Prices
from .candidates import BASELINE, PRISM, Candidate
from .elimination import Judged, order, shown_worse
from .settings import SearchSettings

Stage = Literal["search", "final"]

LENGTHS = (1 / 4, 1 / 2, 1.0)
"""of the recipe's tokens, in the rounds of a halving"""

FRESH_SEEDS = 1_000_000
"""Added to the recipe's seed for the final comparison; no search has that many seeds."""

SPARE = 0.9
"""of what is left may be planned for the final comparison: a budget that ends early costs whole pairs"""


class RunId(NamedTuple):
    """One training, the same in every process: no two rounds share a seed."""

    stage: str
    schedule: str
    tokens: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Round:
    """A list of runs: every one of `schedules` with every one of `seeds`."""

    stage: Stage
    tokens: int
    """of training, of each run"""
    seeds: tuple[int, ...]
    schedules: tuple[str, ...]

    @property
    def runs(self) -> list[RunId]:
        """Seed by seed, so that what a budget ends early leaves whole pairs."""
        keys = order_runs(self.schedules, self.seeds, (0.0,))
        return [RunId(self.stage, key.arm, self.tokens, key.seed) for key in keys]


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The rules by which one round follows another."""

    settings: SearchSettings
    candidates: Sequence[Candidate]
    lengths: tuple[int, ...]
    """Tokens of a run in each rung, ascending; the last is the recipe's."""
    first_seed: int
    budget: Budget

    def first(self) -> Round:
        return self._round(self.lengths[0], 0, [each.name for each in self.candidates])

    def after(self, rounds: Sequence[Round], judged: Sequence[Judged], left: float, prices: Prices) -> Round | None:
        """The next round of the search, where `left` is what remains of the budget; None where the search has ended."""
        dropped = set[str]().union(*(each.dropped for each in judged))
        names = [name for name in rounds[-1].schedules if name not in dropped]
        chosen_from = [
            each for each in self.candidates if each.in_space and each.name in set(names) - shown_worse(judged)
        ]
        if self.settings.method == "grid" or judged[-1].leader is None or len(chosen_from) < 2:
            return None
        rung = self.lengths.index(rounds[-1].tokens)
        used = sum(len(each.seeds) for each in rounds)
        for length in self.lengths[rung : rung + 2][::-1]:
            following = self._round(length, used, names)
            if prices.of(length, len(following.runs)) <= left - self.end_price(prices):
                return following
        return None

    def undropped(self, prices: Prices) -> list[Round]:
        """The rounds of a search that drops nothing."""
        rounds, left = [self.first()], self.budget.amount
        nothing = Judged(seeds=(), leader=rounds[0].schedules[0], standings={})
        while True:
            left -= prices.of(rounds[-1].tokens, len(rounds[-1].runs))
            following = self.after(rounds, [nothing] * len(rounds), left, prices)
            if following is None:
                return rounds
            rounds.append(following)

    def final(self, rounds: Sequence[Judged], recommended: str, left: float, prices: Prices) -> Round:
        """The comparison of the winner, the recommended schedule, uniform, the best wider uniform and prism.

        With the seeds of the settings, or up to twice as many where what is `left` of the budget carries them: fixed
        here, before any of its runs.
        """
        names = order([each.name for each in self.candidates], rounds)
        by_name = {each.name: each for each in self.candidates}
        wider = next((n for n in names if by_name[n].is_uniform and n != BASELINE and _finished(n, rounds)), None)
        prism = PRISM if PRISM in by_name and _finished(PRISM, rounds) else None
        winner = next((each.leader for each in reversed(rounds) if each.leader), None)
        wanted = (BASELINE, recommended, winner, wider, prism)
        schedules = tuple(dict.fromkeys(name for name in wanted if name))
        first = self.first_seed + FRESH_SEEDS
        least, one_seed = self.settings.final_seeds, prices.of(self.lengths[-1], len(schedules))
        carried = int(SPARE * left / one_seed) if math.isfinite(left) else least
        seeds = tuple(range(first, first + max(least, min(carried, 2 * least))))
        return Round(stage="final", tokens=self.lengths[-1], seeds=seeds, schedules=schedules)

    def end_price(self, prices: Prices, count: int | None = None) -> float:
        """What the final comparison may take: uniform, winner, recommended, best wider uniform, prism; fewer where a
        search begins with fewer (`count`, by default the candidates)."""
        wider = any(each.is_uniform and each.name != BASELINE for each in self.candidates)
        prism = any(each.name == PRISM for each in self.candidates)
        schedules = min(3 + wider + prism, count or len(self.candidates))
        return prices.of(self.lengths[-1], schedules * self.settings.final_seeds)

    def planned(self, count: int | None = None) -> list[tuple[int, int]]:
        """(tokens of a run, runs) of each round, if each one drops half of the schedules, `count` in the first (by
        default the candidates)."""
        left, plan = count or len(self.candidates), []
        for length in self.lengths:
            plan.append((length, left * self.settings.seeds))
            left = math.ceil(left / 2)
        return plan

    def planned_price(self, prices: Prices, count: int | None = None) -> float:
        """What the search takes by that plan, the final comparison included."""
        return sum(prices.of(*each) for each in self.planned(count)) + self.end_price(prices, count)

    def _round(self, tokens: int, used: int, schedules: Sequence[str]) -> Round:
        first = self.first_seed + used
        seeds = tuple(range(first, first + self.settings.seeds))
        return Round(stage="search", tokens=tokens, seeds=seeds, schedules=tuple(schedules))


def lengths_of(recipe: Recipe, method: str) -> tuple[int, ...]:
    """Tokens of a run in each rung, in whole steps."""
    shares = LENGTHS if method == "halving" else (1.0,)
    steps = sorted({max(1, int(share * recipe.steps)) for share in shares})
    return tuple(count * recipe.training.tokens_per_step for count in steps)


def ladder_of(recipe: Recipe, settings: SearchSettings, candidates: Sequence[Candidate]) -> Ladder:
    """The rounds of a search for `recipe`. Raises InputError for a budget that cannot be read."""
    return Ladder(
        settings=settings,
        candidates=candidates,
        lengths=lengths_of(recipe, settings.method),
        first_seed=recipe.training.seed,
        budget=budget_of(settings),
    )


def budget_of(settings: SearchSettings) -> Budget:
    default = "1h" if settings.method == "halving" else None
    return Budget.parse(settings.budget or default)


def affordable(ladder: Ladder, prices: Prices, most: int) -> int:
    """Schedules to begin with: as many, up to `most`, as the plan carries that drops half in every round.

    Raises InputError where the references alone, and the end, are more than the budget.
    """
    budget = ladder.budget
    one_run = prices.of(ladder.lengths[-1])
    least = len(ladder.candidates)
    first_round = prices.of(ladder.lengths[0], least * ladder.settings.seeds)
    needed = first_round + ladder.end_price(prices)
    if budget.amount < needed:
        raise InputError(
            f"budget {budget.words()} is too small: one run takes {budget.words(one_run)}, the first round of "
            f"{least} schedules {budget.words(first_round)} and the final comparison "
            f"{budget.words(ladder.end_price(prices))}; give {budget.words(needed)} or more, lower --seeds or "
            "--final-seeds, or take a smaller recipe"
        )
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        fits = ladder.planned_price(prices, middle) <= budget.amount
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _finished(name: str, rounds: Sequence[Judged]) -> bool:
    """Whether a schedule has a loss: one that diverged needs no final comparison."""
    return any(name in each.standings and each.standings[name].loss is not None for each in rounds)
