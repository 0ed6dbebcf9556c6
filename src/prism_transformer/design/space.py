"""The space of schedules under a set of constraints: count it, list it, draw from it, move in it.

A schedule is read layer by layer by a small automaton whose state is what the constraints still need to know. Counting
the ways to finish from each state, last layer first, gives the exact size without listing anything, and with it the
i-th schedule, so a draw of an index is a uniform draw of a schedule.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

from ..errors import InputError
from ..model.head_schedule import HeadSchedule, ScheduleError, divisors


class _State(NamedTuple):
    heads: int
    run: int
    """Layers of the present phase, where phase lengths matter and the phase is not the base's; 0 otherwise."""
    base_layers: int
    """Layers at the base heads, counted up to `min_base_layers`."""


_RELAXED: dict[str, Any] = {
    "monotone": False,
    "boundary": False,
    "even_head_dim": False,
    "max_head_dim": None,
    "min_base_layers": 0,
    "allowed_heads": None,
    "phase_layers": None,
}


@dataclass(frozen=True, kw_only=True)
class ScheduleSpace:
    """Every schedule of `n_layers` layers that keeps the constraints; by default the paper's three and RoPE's."""

    n_layers: int
    d_model: int
    base_heads: int
    monotone: bool = True
    """Heads never fall from one layer to the next."""
    boundary: bool = True
    """The last layer has the base heads."""
    even_head_dim: bool = True
    """RoPE needs it."""
    max_head_dim: int | None = None
    min_base_layers: int = 0
    """Layers that have the base heads, wherever they are."""
    allowed_heads: tuple[int, ...] | None = None
    """The head counts to choose from; None: every divisor of d_model up to the base heads."""
    phase_layers: tuple[int, int] | None = None
    """Fewest and most layers of each phase that is not at the base heads; None: any."""

    def __post_init__(self) -> None:
        try:
            HeadSchedule.parse(f"{self.base_heads}x{self.n_layers}", d_model=self.d_model)
        except ScheduleError as error:
            raise InputError([f"base heads: {problem}" for problem in error.problems]) from None
        problems = []
        if self.allowed_heads is not None:
            try:
                HeadSchedule(self.allowed_heads, d_model=self.d_model)
            except ScheduleError as error:
                problems += [f"allowed {problem}" for problem in error.problems]
        if self.phase_layers is not None and not 1 <= self.phase_layers[0] <= self.phase_layers[1]:
            problems.append(f"phase_layers={self.phase_layers} must be fewest and most layers, 1 <= fewest <= most")
        if problems:
            raise InputError(problems)

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """The head counts that a layer may have, ascending."""
        source = divisors(self.d_model) if self.allowed_heads is None else sorted(set(self.allowed_heads))
        limit = self.base_heads if self.allowed_heads is None else self.d_model
        widest = self.max_head_dim or self.d_model
        dims = ((h, self.d_model // h) for h in source if h <= limit)
        return tuple(h for h, dim in dims if dim <= widest and not (self.even_head_dim and dim % 2))

    @property
    def count(self) -> int:
        """The number of schedules, exact at any size and without listing them."""
        return self._ways[0].get(None, 0)

    def __contains__(self, schedule: object) -> bool:
        if not isinstance(schedule, HeadSchedule) or schedule.d_model != self.d_model:
            return False
        state: _State | None = None
        for heads in schedule.heads:
            state = self._step(state, heads) if heads in self.choices else None
            if state is None:
                return False
        return schedule.n_layers == self.n_layers and state is not None and self._accepts(state)

    def __iter__(self) -> Iterator[HeadSchedule]:
        """Every schedule, lazily, in the order of their lists of heads."""
        pending: list[tuple[_State | None, tuple[int, ...]]] = [(None, ())] if self.count else []
        while pending:
            state, heads = pending.pop()
            if len(heads) == self.n_layers:
                yield self._schedule(heads)
                continue
            pending += [(after, (*heads, after.heads)) for after in reversed(list(self._next(len(heads), state)))]

    def __getitem__(self, index: int) -> HeadSchedule:
        """The schedule at `index` of the order of iteration, found without listing those before it."""
        if not 0 <= index < self.count:
            raise IndexError(f"schedule {index} of {self.count}")
        heads: list[int] = []
        state: _State | None = None
        for layer in range(self.n_layers):
            for after in self._next(layer, state):
                ways = self._ways[layer + 1][after]
                if index < ways:
                    break
                index -= ways
            state = after
            heads.append(after.heads)
        return self._schedule(heads)

    def sample(self, k: int, *, seed: int) -> list[HeadSchedule]:
        """`k` different schedules, every set of `k` equally likely. Raises `InputError` when there are fewer."""
        if k > self.count:
            raise InputError(self.why_empty() or f"{k} schedules asked for, and the space holds {self.count}")
        stream = random.Random(seed)
        drawn: dict[int, None] = {}
        while len(drawn) < k:
            drawn[stream.randrange(self.count)] = None
        return [self[index] for index in drawn]

    def neighbours(self, schedule: HeadSchedule) -> Iterator[HeadSchedule]:
        """The schedules of the space one move away: the first or last n layers of a phase take another head count.

        So a boundary moves, a step changes its width, appears or vanishes. Each neighbour comes once.
        """
        seen = {schedule.heads}
        start = 0
        for old, length in schedule.phases:
            stretches = [(start, start + n) for n in range(1, length + 1)]
            stretches += [(start + n, start + length) for n in range(1, length)]
            for first, end in stretches:
                for new in self.choices:
                    heads = schedule.heads[:first] + (new,) * (end - first) + schedule.heads[end:]
                    if new != old and heads not in seen:
                        seen.add(heads)
                        if (moved := self._schedule(heads)) in self:
                            yield moved
            start += length

    def why_empty(self) -> str | None:
        """The fewest constraints whose removal leaves something, for a space that holds nothing; else None."""
        if self.count:
            return None
        held = [name for name, relaxed in _RELAXED.items() if getattr(self, name) != relaxed]
        for size in range(1, len(held) + 1):
            culprits = []
            for names in combinations(held, size):
                wider = replace(self, **{name: _RELAXED[name] for name in names})
                if wider.count:
                    settings = " and ".join(f"{name}={getattr(self, name)}" for name in names)
                    culprits.append(f"{settings} (without: {wider.count})")
            if culprits:
                return f"no schedule keeps every constraint; what empties the space: {', or '.join(culprits)}"
        raise AssertionError("a uniform schedule is always in the unconstrained space")

    @cached_property
    def _ways(self) -> list[dict[_State | None, int]]:
        """For each number of layers placed, the states that can still finish and in how many ways."""
        reached: list[set[_State | None]] = [{None}]
        for _ in range(self.n_layers):
            steps = (self._step(state, heads) for state in reached[-1] for heads in self.choices)
            reached.append({state for state in steps if state is not None})
        ways: list[dict[_State | None, int]] = [{s: 1 for s in reached[-1] if s is not None and self._accepts(s)}]
        for states in reversed(reached[:-1]):
            after = ways[-1]
            sums = {s: sum(after.get(self._step(s, heads), 0) for heads in self.choices) for s in states}
            ways.append({state: total for state, total in sums.items() if total})
        return ways[::-1]

    def _next(self, layer: int, state: _State | None) -> Iterator[_State]:
        """The states after placing one more layer on `layer` placed ones, dead ends left out."""
        for heads in self.choices:
            after = self._step(state, heads)
            if after is not None and after in self._ways[layer + 1]:
                yield after

    def _step(self, state: _State | None, heads: int) -> _State | None:
        """The state after one more layer of `heads`; None where a constraint forbids it."""
        at_base = heads == self.base_heads
        base_layers = min(self.min_base_layers, (state.base_layers if state else 0) + at_base)
        run = 0 if at_base or self.phase_layers is None else 1
        if state is not None and heads == state.heads:
            run += state.run
            if self.phase_layers is not None and run > self.phase_layers[1]:
                return None
        elif state is not None and ((self.monotone and heads < state.heads) or not self._phase_may_end(state)):
            return None
        return _State(heads, run, base_layers)

    def _accepts(self, state: _State) -> bool:
        if self.boundary and state.heads != self.base_heads:
            return False
        return state.base_layers >= self.min_base_layers and self._phase_may_end(state)

    def _phase_may_end(self, state: _State) -> bool:
        return self.phase_layers is None or state.heads == self.base_heads or state.run >= self.phase_layers[0]

    def _schedule(self, heads: list[int] | tuple[int, ...]) -> HeadSchedule:
        return HeadSchedule(heads, d_model=self.d_model)
