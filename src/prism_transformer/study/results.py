"""From runs to results.json: `analyse` is pure and the whole of it; every figure is unrounded and traceable to a run.

Keys beyond those of the public contract (seeds, baseline, arms, differences, verdict) are documented where they are
made: RunGrid.arm_entry, decisions.judge, documents, dynamics, equivalent_tokens, verdict.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import RESULTS, read_json, write_json
from . import equivalent_tokens, learning_rates, verdict
from .decisions import judge, what_pairs_find
from .documents import document_differences
from .dynamics import milestones
from .grid import RunGrid
from .measured import ArmInfo, Endpoint, RunResult, check

__all__ = ["ArmInfo", "Endpoint", "RunResult", "analyse", "read_results", "write_results"]


def analyse(arms: Sequence[ArmInfo], runs: Sequence[RunResult], endpoint: Endpoint) -> dict[str, Any]:
    """The content of results.json. Raises `InputError` when the runs cannot be compared."""
    check(arms, runs, endpoint)
    grid = RunGrid(arms, runs, endpoint)
    several_rates = len(grid.rates) > 1
    differences = _differences(grid, endpoint)
    slopes, source = grid.slopes()
    for name, entry in differences.items():
        values = {int(seed): value for seed, value in entry["per_seed"].items()}
        level = None if several_rates else entry["confidence"]
        is_ruler = grid.arms[name].role == "calibration_less"  # in its own units it is what it is by definition
        tokens = None if is_ruler else equivalent_tokens.equivalent_tokens(values, slopes, source, level)
        entry["equivalent_tokens"] = tokens
        speed = grid.speed_ratios(name)
        entry["equal_time"] = equivalent_tokens.equal_time(values, slopes, speed, source, level)
    results = {
        "seeds": grid.seeds,
        "baseline": endpoint.baseline,
        "primary": endpoint.primary,
        "endpoint": asdict(endpoint) | {"looks": list(endpoint.looks), "look": endpoint.look},
        "arms": {arm.name: grid.arm_entry(arm) for arm in arms},
        "differences": differences,
        "uniforms": _against_uniforms(grid, endpoint),
        "others": _against_others(grid, endpoint),
        "learning_rates": _rates_entry(arms, runs, grid, endpoint) if several_rates else None,
        "curves": {arm.name: grid.curve(arm.name) for arm in arms},
        "difference_curves": {name: grid.difference_curve(name, endpoint.confidence) for name in differences},
        "dynamics": _dynamics(grid, endpoint),
        "documents": _documents(grid, endpoint),
    }
    results["calibration"] = verdict.calibration(results)
    results["verdict"] = verdict.verdict(results)
    return results


def _dynamics(grid: RunGrid, endpoint: Endpoint) -> list[dict[str, Any]]:
    """When each arm reached a list of losses; the calibrations, whose end is known, are left out."""
    curves = {
        name: {seed: run.on_the_way for seed, run in grid.done(name).items()}
        for name, arm in grid.arms.items()
        if not arm.is_calibration
    }
    return milestones(curves, baseline=endpoint.baseline, confidence=endpoint.confidence)


def _documents(grid: RunGrid, endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """The differences by validation document, of the runs that tell them."""
    known = {
        name: {seed: run.documents for seed, run in grid.done(name).items() if run.documents} for name in grid.arms
    }
    return document_differences(known, baseline=endpoint.baseline, confidence=endpoint.confidence)


def _differences(grid: RunGrid, endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """Every arm but the baseline, judged in its family, in the order of the arms."""
    others = [arm for arm in grid.arms.values() if arm.name != endpoint.baseline]
    families = [[arm.name for arm in others if arm.name == endpoint.primary]]
    families.append([arm.name for arm in others if arm.name != endpoint.primary and not arm.is_calibration])
    judged: dict[str, dict[str, Any]] = {}
    for family in families:
        judged |= judge({name: grid.pairs(name) for name in family}, endpoint)
    for arm in others:
        if arm.is_calibration:
            judged |= judge({arm.name: grid.pairs(arm.name)}, endpoint, calibration=True)
    losses = list(grid.losses(endpoint.baseline).values())
    plannable = bool(losses) and len(grid.rates) < 2  # the planning is Student's
    for entry in judged.values():
        entry["planning"] = what_pairs_find(entry, float(np.mean(losses)), endpoint) if plannable else None
    return {arm.name: judged[arm.name] for arm in others}


def _against_uniforms(grid: RunGrid, endpoint: Endpoint) -> dict[str, Any] | None:
    """The primary arm against every uniform-N that was run; None without a second one.

    Each is tested at the look's own alpha: to claim all of them at once needs every single one, so no test gains from
    their number and no further correction is due.
    """
    uniforms = [name for name, arm in grid.arms.items() if arm.is_uniform]
    primary = endpoint.primary
    if primary is None or primary in uniforms or len(uniforms) < 2:
        return None
    against: dict[str, Any] = {}
    for name in uniforms:
        against |= judge({name: grid.pairs(primary, name)}, endpoint)
    return {"against": against, "lower_than_all": all(entry["decision"] == "lower" for entry in against.values())}


def _against_others(grid: RunGrid, endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """The primary arm minus every other schedule that is not uniform, such as reversed: one more family (Holm)."""
    if endpoint.primary is None:
        return {}
    others = [
        name
        for name, arm in grid.arms.items()
        if not (arm.is_uniform or arm.is_calibration or name in (endpoint.primary, endpoint.baseline))
    ]
    return judge({name: grid.pairs(endpoint.primary, name) for name in others}, endpoint)


def _rates_entry(
    arms: Sequence[ArmInfo], runs: Sequence[RunResult], grid: RunGrid, endpoint: Endpoint
) -> dict[str, Any]:
    """Each arm at each rate beside the baseline at the same rate, and the rates that were chosen for the verdict."""
    by_rate = {rate: [run for run in runs if run.lr == rate] for rate in learning_rates.rates_of(runs)}
    grids = {rate: RunGrid(arms, of_rate, endpoint) for rate, of_rate in by_rate.items()}
    rows = []
    for name in grid.arms:
        for rate, at_rate in grids.items():
            losses = list(at_rate.losses(name).values())
            row = {"arm": name, "lr": rate, "mean_loss": float(np.mean(losses)) if losses else None}
            row["diverged"] = sum(at_rate.status(name, seed) == "diverged" for seed in at_rate.seeds)
            if name != endpoint.baseline:
                entry = judge({name: at_rate.pairs(name)}, endpoint)[name]
                row |= {key: entry[key] for key in ("mean", "low", "high", "n", "planned", "confidence")}
            rows.append(row)
    chosen = {
        name: [run.lr if run else None for run in (grid.runs.get((name, seed)) for seed in grid.seeds)]
        for name in grid.arms
    }
    return {"rates": list(by_rate), "chosen": chosen, "equal_rate": rows}


def write_results(folder: Path, results: Mapping[str, Any]) -> Path:
    """Write results.json into `folder`, whole or not at all."""
    path = folder / RESULTS
    write_json(path, results)
    return path


def read_results(folder: Path) -> dict[str, Any]:
    """The results of a study folder. Raises `InputError` when there are none or they cannot be read."""
    path = folder / RESULTS
    if not path.exists():
        raise InputError(f"{folder} has no {RESULTS}; give a study folder, or run `prism compare` into it")
    return read_json(path)
