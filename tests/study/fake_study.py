"""A made-up study with known truth, as rich as a real one: for the statistics to judge and the page to show."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from prism_transformer.study.measured import ArmInfo, Endpoint, Evaluation, RunResult

STEPS = 1000
TOKENS = 2_048_000
BASE_HEADS = 4
SCHEDULES: dict[str, tuple[int, ...]] = {
    "uniform": (4, 4, 4, 4),
    "prism": (1, 2, 4, 4),
    "uniform-2": (2, 2, 2, 2),
    "uniform-1": (1, 1, 1, 1),
    "reversed": (4, 4, 2, 1),
    "uniform, 20 % fewer tokens": (4, 4, 4, 4),
    "uniform, other initial seed": (4, 4, 4, 4),
}
ROLES = {
    "uniform": "baseline",
    "prism": "primary",
    "uniform, 20 % fewer tokens": "calibration_less",
    "uniform, other initial seed": "calibration_null",
}
SPEEDS = {"uniform": 21_000.0, "prism": 22_100.0, "uniform-2": 22_800.0, "uniform-1": 23_500.0}
FEWER = 0.8
SLOPE = -0.45
"""nats per unit of ln(tokens), between runs"""


def arms(names: Sequence[str] = tuple(SCHEDULES)) -> list[ArmInfo]:
    return [ArmInfo(name=name, heads=SCHEDULES[name], role=ROLES.get(name, "secondary")) for name in names]  # type: ignore[arg-type]


def endpoint(seeds: int, **changes: object) -> Endpoint:
    return Endpoint(**({"baseline": "uniform", "primary": "prism", "planned_seeds": seeds} | changes))  # type: ignore[arg-type]


def run(arm: str, seed: int, loss: float | None, **changes: object) -> RunResult:
    settings = {"arm": arm, "seed": seed, "status": "done", "val_loss": loss, "tokens": TOKENS}
    return RunResult(**(settings | changes))  # type: ignore[arg-type]


def runs(
    seeds: int = 5,
    effects: Mapping[str, float] | None = None,
    names: Sequence[str] = tuple(SCHEDULES),
    sd_seed: float = 0.004,
    sd_run: float = 0.003,
) -> list[RunResult]:
    """Runs whose final loss is 3.92 + effect + what the seed's arms share + what is the run's own."""
    effects = (
        {"prism": -0.004, "uniform-2": -0.006, "uniform-1": 0.002, "reversed": 0.003} if effects is None else effects
    )
    random = np.random.default_rng(7)
    results = []
    for seed in range(seeds):
        shared = random.normal(scale=sd_seed)
        for name in names:
            share = FEWER if "fewer" in name else 1.0
            loss = 3.92 + SLOPE * math.log(share) + effects.get(name, 0.0) + shared + random.normal(scale=sd_run)
            results.append(_run_with_curve(name, seed, loss, share, random))
    return results


def _run_with_curve(name: str, seed: int, loss: float, share: float, random: np.random.Generator) -> RunResult:
    steps = [round(STEPS * share * k / 20) for k in range(21)]
    speed = SPEEDS.get(name, 21_000.0) * random.normal(1.0, 0.01)
    curve = []
    for step in steps:
        tokens = TOKENS * step // STEPS
        rest = 1 - step / steps[-1]
        height = loss + (6.9 - loss) * rest**2.5 + (random.normal(scale=0.01) if 0 < rest < 1 else 0.0)
        curve.append(Evaluation(step, tokens, tokens / speed, float(height)))
    return run(
        name,
        seed,
        curve[-1].val_loss,
        tokens=curve[-1].tokens,
        curve=tuple(curve),
        tokens_per_second=speed,
        source=f"runs/{name}/seed-{seed}/metrics.jsonl",
    )
