"""Which schedules a round has shown to be worse than the best, by paired differences.

A round is a complete table: every schedule that is left, on the same seeds. Its losses are what a schedule adds, what a
seed adds (initial weights and data order, which all schedules share), and the run's own noise. The spread of that noise
is taken from the whole table, since three seeds alone hardly know it; where the differences of one pair spread more,
theirs counts, and their own interval has to exclude zero too. So a schedule of up to twice the noise is not lost by the
calm of the others.

The promise: the schedule that is truly best (of the length that was trained) is dropped in at most 1 - confidence of
searches. It is lost only where its mean lies behind that of another by more than chance; there are A - 1 others, and
Bonferroni's inequality adds their chances up. Round k may spend 1 / (k (k + 1)) of the whole; all rounds sum to it.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from ..study.statistics import Array, paired_t


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a schedule stands after a round. Differences are in nats per token, negative is better."""

    loss: float | None
    """mean over the seeds; None where it diverged"""
    mean: float | None
    """minus the baseline's"""
    low: float | None = None
    high: float | None = None
    """ends of the interval of `mean`; the intervals of a round hold together"""
    behind: float | None = None
    """minus the leader's"""
    p: float | None = None
    """chance of being so far behind without being worse, before the correction"""
    is_worse: bool = False
    """than the leader, as was shown: it is dropped, unless it is the baseline, which goes on to be compared with"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a round has shown."""

    seeds: tuple[int, ...]
    """on which every schedule has finished"""
    leader: str | None
    """the best of those that may be chosen; None where nothing has finished"""
    standings: Mapping[str, Standing]
    drops_from: float | None = None
    """nats behind the leader from which on a schedule of the common spread is dropped: what this round could show"""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """name -> why"""


def round_alpha(number: int, confidence: float) -> float:
    """The chance of dropping the best that round `number` (from 1) may spend; all rounds sum to 1 - confidence."""
    return (1 - confidence) / (number * (number + 1))


def judge_round(
    losses: Mapping[str, Mapping[int, float | None]],
    *,
    number: int,
    baseline: str,
    eligible: Container[str],
    confidence: float,
) -> Judged:
    """Judge a round: `losses` of each schedule by seed, None where the run diverged, absent where it was not trained.

    A schedule that diverged with a seed is dropped. The baseline never is, nor does a seed count on which it diverged.
    """
    lost = {seed for seed, loss in losses[baseline].items() if loss is None}
    of_seeds = {name: {s: x for s, x in of.items() if s not in lost} for name, of in losses.items()}
    diverged = {name: [s for s, x in of.items() if x is None] for name, of in of_seeds.items()}
    dropped = {name: f"diverged with seed {seeds[0]}" for name, seeds in diverged.items() if seeds}
    kept = [name for name in losses if name not in dropped]
    seeds = sorted(set.intersection(*(set(of_seeds[name]) for name in kept)))
    standings = {name: Standing(loss=None, mean=None) for name in dropped}
    if not seeds:
        return Judged(seeds=(), leader=None, standings=standings, dropped=dropped)
    table = np.array([[of_seeds[name][seed] for seed in seeds] for name in kept], dtype=np.float64)
    means = dict(zip(kept, table.mean(axis=1).tolist(), strict=True))
    leader = min((name for name in kept if name in eligible), key=means.__getitem__)
    to_leader = _differences(table, kept.index(leader), confidence)
    to_baseline = _differences(table, kept.index(baseline), confidence)
    others = max(1, len(kept) - 1)
    half = to_baseline.half(1 - (1 - confidence) / others)
    alpha = round_alpha(number, confidence) / others
    p = to_leader.p_behind()
    for row, name in enumerate(kept):
        mean = means[name] - means[baseline]
        with_interval = len(seeds) > 1 and name != baseline
        is_worse = len(seeds) > 1 and bool(p[row] <= alpha) and to_leader.excludes_zero[row]
        standings[name] = Standing(
            loss=means[name],
            mean=mean,
            low=mean - float(half[row]) if with_interval else None,
            high=mean + float(half[row]) if with_interval else None,
            behind=means[name] - means[leader],
            p=float(p[row]) if len(seeds) > 1 else None,
            is_worse=is_worse,
        )
        if is_worse and name != baseline:
            dropped[name] = f"worse than {leader} by {means[name] - means[leader]:.4f} nats"
    drops_from = to_leader.behind_at(alpha) if len(seeds) > 1 and len(kept) > 1 else None
    return Judged(seeds=tuple(seeds), leader=leader, standings=standings, drops_from=drops_from, dropped=dropped)


@dataclass(frozen=True)
class _Paired:
    """The differences of every row of a table to one of them."""

    mean: Array
    error: Array
    pooled_error: float
    """of a row whose spread is the common one"""
    freedom: int
    excludes_zero: Sequence[bool]
    """whether the interval of each pair's own spread does"""

    def half(self, confidence: float) -> Array:
        return np.asarray(special.stdtrit(self.freedom, 0.5 + confidence / 2) * self.error)

    def p_behind(self) -> Array:
        """One-sided: how often a row that is not worse lies so far behind."""
        with np.errstate(divide="ignore", invalid="ignore"):
            p = special.stdtr(self.freedom, -self.mean / self.error)
        return np.where(self.error > 0, p, np.where(self.mean > 0, 0.0, 1.0))

    def behind_at(self, p: float) -> float:
        """How far behind `p_behind` is `p` for a row of the common spread."""
        return float(-special.stdtrit(self.freedom, p) * self.pooled_error)


def _differences(table: Array, row: int, confidence: float) -> _Paired:
    """`table` [schedules, seeds]; the spread of a difference is the pooled one, or its own where that is larger."""
    schedules, seeds = table.shape
    differences = table - table[row]
    mean = differences.mean(axis=1)
    freedom = (schedules - 1) * (seeds - 1)
    if freedom == 0:
        return _Paired(mean, np.full(schedules, np.nan), math.nan, 1, [False] * schedules)
    noise = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0, keepdims=True) + table.mean()
    pooled = math.sqrt(2 * float((noise**2).sum()) / freedom)
    own = paired_t(differences, confidence)
    excludes_zero = (own.low > 0) | (own.high < 0)
    error = np.maximum(pooled, own.sd) / math.sqrt(seeds)
    return _Paired(mean, error, pooled / math.sqrt(seeds), freedom, excludes_zero.tolist())


def shown_worse(judged: Sequence[Judged]) -> set[str]:
    """What was dropped, and the baseline where the last round that had a leader has shown it to be worse.

    An earlier round's word on the baseline does not count: it goes on, and a longer run may turn the order round.
    """
    standings = next((each.standings for each in reversed(judged) if each.leader), {})
    worse = {name for name, each in standings.items() if each.is_worse}
    return worse.union(*(each.dropped for each in judged))


def order(names: Sequence[str], rounds: Sequence[Judged]) -> list[str]:
    """Best first: who was judged in a later round comes before, then the lower loss of that round."""

    def place(name: str) -> tuple[int, float]:
        last = max((k for k, each in enumerate(rounds) if name in each.standings), default=-1)
        loss = rounds[last].standings[name].loss if last >= 0 else None
        return -last, math.inf if loss is None else loss

    return sorted(names, key=place)
