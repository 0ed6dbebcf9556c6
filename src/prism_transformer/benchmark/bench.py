"""`bench`: tokens a second, memory and kernels of several schedules on this device, side by side."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ..training.build import compile_layers, compiles
from ..training.device import Device, choose_device
from ..training.metrics import tokens_per_second
from ..training.recipe import Recipe
from ..training.state import environment
from .inspection import Compilation, Inspected, attention_kernels, compilation_counted, differences
from .memory import peak_memory
from .peak import Peak, device_peak
from .settings import BenchSettings, Work
from .timing import interleave, repeats_of, speed_ratio, turn_of, waiting
from .workloads import BUILDERS, Workload, build_model

Say = Callable[[str], None]


def bench(
    arms: Mapping[str, Recipe], settings: BenchSettings, *, vocab_size: int, say: Say = lambda sentence: None
) -> dict[str, Any]:
    """Time every arm in turns, the first one being the baseline.

    Returns {"device", "peak", "rounds", "arms": {NAME: {"heads", "kernels", WORK: {…}, "peak_memory"}},
    "ratios": {NAME: {WORK: {"ratio", "low", "high"}}}, "unfair": {NAME: [why]}, …}; rates in tokens and FLOP a second,
    memory in bytes. Warm-up and compilation are not timed.
    """
    first = next(iter(arms.values()))
    device = choose_device(first.device)
    peak = device_peak(device)
    found: dict[str, Any] = {name: _described(recipe, vocab_size) for name, recipe in arms.items()}
    ratios: dict[str, dict[str, Any]] = {name: {} for name in list(arms)[1:]}
    compiled: dict[str, Compilation] = {}
    for work in settings.work:
        say(f"timing {work}: {', '.join(arms)}")
        workloads = {}
        for name, recipe in arms.items():
            workloads[name], counted = _prepare(work, recipe, device, vocab_size, found[name])
            compiled |= {name: counted} if counted else {}
        _time(work, workloads, settings, device, found, ratios, peak.flops if peak else None)
        del workloads
        gc.collect()
    if settings.memory:
        for name, recipe in arms.items():
            say(f"peak memory of a training step: {name}")
            found[name]["peak_memory"] = peak_memory(recipe, vocab_size=vocab_size)
    inspected = {name: Inspected(e["kernels"], e["heads_per_layer"], compiled.get(name)) for name, e in found.items()}
    return {
        **machine_entry(device, peak),
        "threads": torch.get_num_threads() if device.device.type == "cpu" else None,
        "compile": first.device.compile,
        "settings": asdict(settings),
        "sizes": _sizes(first, vocab_size),
        "baseline": next(iter(arms)),
        "arms": found,
        "ratios": ratios,
        "unfair": differences(inspected),
    }


def machine_entry(device: Device, peak: Peak | None) -> dict[str, Any]:
    """What the figures were measured on, as every file of figures has it."""
    return {
        "device": {**environment(), "device": str(device.device), "dtype": str(device.dtype).removeprefix("torch.")},
        "peak": asdict(peak) if peak else None,
    }


def _described(recipe: Recipe, vocab_size: int) -> dict[str, Any]:
    schedule, cost = recipe.model.head_schedule(), recipe.model.cost(vocab_size)
    return {
        "heads": str(schedule),
        "heads_per_layer": list(schedule.heads),
        "head_dims": list(schedule.head_dims),
        "matmul_flops_per_token": cost.matmul_flops_per_token,
        "softmax_entries": cost.softmax_entries,
        "kernels": {},
        "compiled": None,
    }


def _sizes(recipe: Recipe, vocab_size: int) -> dict[str, int]:
    model = recipe.model
    return {
        "layers": model.layers,
        "d_model": model.d_model,
        "context": model.context,
        "micro_batch": recipe.training.micro_batch,
        "vocab_size": vocab_size,
    }


def _prepare(
    work: Work, recipe: Recipe, device: Device, vocab_size: int, entry: dict[str, Any]
) -> tuple[Workload, Compilation | None]:
    """The workload of one arm, looked at once as it runs; its training step is compiled where the recipe says so."""
    model = build_model(recipe, device, vocab_size=vocab_size)
    workload = BUILDERS[work](model, recipe, device)
    entry["kernels"][work] = attention_kernels(model, workload.run)
    if not compiles(recipe.device, device) or work != "training":
        return workload, None
    with compilation_counted() as counted:
        compile_layers(model, sharded=False)
        workload.run()
    entry["compiled"] = asdict(counted)
    return workload, counted


def _time(
    work: Work,
    workloads: Mapping[str, Workload],
    settings: BenchSettings,
    device: Device,
    found: dict[str, Any],
    ratios: dict[str, dict[str, Any]],
    peak: float | None,
) -> None:
    """Turns of every arm; their rates go into `found`, their ratios to the first arm into `ratios`."""
    turns = [turn_of(workload.run, wait=waiting(device)) for workload in workloads.values()]
    repeats = repeats_of(turns, seconds=settings.turn_seconds)
    seconds = interleave(turns, rounds=settings.rounds, repeats=repeats)
    for row, (name, workload) in zip(seconds, workloads.items(), strict=True):
        median = float(np.median(row))
        rate = workload.flops / median
        found[name][work] = {
            "tokens_per_second": tokens_per_second(workload.tokens, median),
            "flops_per_second": rate,
            "share_of_peak": rate / peak if peak else None,
            "seconds": row.tolist(),
            "tokens": workload.tokens,
            "repeats": repeats,
        }
        if name in ratios:
            ratios[name][work] = speed_ratio(seconds[0], row)._asdict()
