"""What a search is asked to do, and the schedules that it may choose from."""

from dataclasses import dataclass
from typing import Literal

from ..design.space import ScheduleSpace
from ..errors import InputError
from ..training.recipe import ModelSettings

LEAST_SEEDS = 2
"""of a round: one seed has no spread, so nothing could be told apart"""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The space, how it is searched, and what the end is judged by."""

    method: Literal["halving", "grid"] = "halving"
    """halving: rounds of growing length, from which schedules are dropped that are shown to be worse.
    grid: every legal schedule at full length."""
    budget: str | None = None
    """What all of it may take: time like 2h, or 50M tokens, or 40 runs (in quotes). Default: 1h; grid: no limit."""
    seeds: int = 3
    """Seeds of a round (grid: of the search), the same for every schedule."""
    final_seeds: int = 5
    """Fresh seeds of the final comparison on the test split; up to twice as many where the budget has room."""
    candidates: int | None = None
    """Schedules to begin with, the rest of the space is not looked at; default: as many as the budget can carry."""
    draw: int = 0
    """Seed of the draw where the space is larger than that."""
    confidence: float = 0.95
    """Confidence of the intervals; the best schedule is dropped in at most one of 20 searches."""
    equivalence: float = 0.001
    """Final differences within this part of uniform's loss are called equivalent."""
    monotone: bool = True
    """Only schedules whose heads never fall from one layer to the next (a rule of the paper)."""
    boundary: bool = True
    """Only schedules whose last layer has the base heads (a rule of the paper)."""
    max_head_dim: int | None = 256
    """Widest head dim; 256 is the limit of the fused kernels. None: any."""
    min_base_layers: int = 0
    """Layers that keep the base heads, at the least; the paper's guideline is half of them."""
    allowed_heads: tuple[int, ...] | None = None
    """Head counts to choose from; default: every divisor of d_model up to the base heads."""
    phase_layers: tuple[int, int] | None = None
    """Fewest and most layers of each step before the base heads; the paper's guideline is 2 4."""
    target: Literal["auto", "cuda", "cuda-consumer", "mps", "cpu"] = "auto"
    """Device whose limits the recommended schedule should keep; auto: that of the search."""
    tensor_parallel: int | None = None
    """Devices that will share the heads of every layer; the recommended schedule must allow it."""

    def check(self) -> None:
        """Raise InputError with every setting that cannot be."""
        problems = []
        if self.seeds < LEAST_SEEDS:
            problems.append(f"seeds={self.seeds}: a round needs at least {LEAST_SEEDS} to tell anything apart")
        if self.final_seeds < LEAST_SEEDS:
            problems.append(f"final_seeds={self.final_seeds} must be at least {LEAST_SEEDS}, and 5 to show much")
        if self.candidates is not None and self.candidates < 2:
            problems.append(f"candidates={self.candidates}: a search needs 2 schedules at the least")
        if self.candidates is not None and self.method == "grid":
            problems.append("a grid takes every schedule of the space; leave out candidates, or use halving")
        if not 0.5 <= self.confidence < 1:
            problems.append(f"confidence={self.confidence} is not between 0.5 and 1; the usual is 0.95")
        if not 0 <= self.equivalence < 1:
            problems.append(f"equivalence={self.equivalence} is no part of the loss; the default is 0.001")
        if self.max_head_dim is not None and self.max_head_dim < 1:
            problems.append(f"max_head_dim={self.max_head_dim} must be at least 1")
        if self.tensor_parallel is not None and self.tensor_parallel < 1:
            problems.append(f"tensor_parallel={self.tensor_parallel} must be at least 1")
        if problems:
            raise InputError(problems)

    def space(self, model: ModelSettings) -> ScheduleSpace:
        """The legal schedules. Raises InputError where there are none, or uniform is not among them."""
        space = ScheduleSpace(
            n_layers=model.layers,
            d_model=model.d_model,
            base_heads=model.heads,
            monotone=self.monotone,
            boundary=self.boundary,
            max_head_dim=self.max_head_dim,
            min_base_layers=self.min_base_layers,
            allowed_heads=self.allowed_heads,
            phase_layers=self.phase_layers,
        )
        if empty := space.why_empty():
            raise InputError(empty)
        if problems := _against_uniform(space):
            raise InputError(problems)
        return space


def _against_uniform(space: ScheduleSpace) -> list[str]:
    """Why uniform is not in the space: only what limits the heads of a layer can exclude it."""
    base, dim = space.base_heads, space.d_model // space.base_heads
    problems = []
    if space.max_head_dim is not None and dim > space.max_head_dim:
        problems.append(f"max_head_dim={space.max_head_dim} excludes uniform, whose head dim is {dim}")
    if space.allowed_heads is not None and base not in space.allowed_heads:
        problems.append(f"allowed_heads={list(space.allowed_heads)} excludes uniform, which has {base} heads")
    if space.even_head_dim and dim % 2:
        problems.append(f"uniform has the odd head dim {dim}, which RoPE cannot rotate: choose other base heads")
    return [f"{problem}; every schedule is compared with it, so it must stay" for problem in problems]
