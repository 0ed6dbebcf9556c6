"""`prism bench`: how fast each schedule trains, reads and writes on this device, and in how much memory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..benchmark.settings import BenchSettings
from ..errors import InputError
from ..files import write_json
from ..study.arms import BASELINE, Arm, parse_arms
from ..training.recipe import ModelSettings, OptimizerSettings, Recipe
from ..training.recipe_files import RecipeFile
from .bench_tables import bench_lines, kernel_lines
from .options import Switch
from .progress import ScoreProgress
from .recipes import RecipeOptions, chosen_recipe, parse_over_recipe, recipe_options, vocab_size

SMALLEST = "demo"
HEAD_DIMS = (32, 64, 96, 128, 192, 256, 384)


@dataclass(frozen=True, kw_only=True)
class Bench(RecipeOptions):
    """Time head schedules on this device in turns, on random tokens.

    Timed are a training step, reading a prompt and writing tokens one by one.
    """

    recipe: str = SMALLEST
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file."""
    arms: tuple[str, ...] = ("uniform", "prism")
    """Schedules, as for prism compare; uniform is always there, and the others are compared with it."""
    bench: BenchSettings = field(default_factory=BenchSettings)
    kernels: Switch = False
    """Time attention alone instead, forward and backward, by head dim and context."""
    head_dims: tuple[int, ...] = ()
    """With --kernels: default 32 to 384, as far as they divide d_model."""
    contexts: tuple[int, ...] = ()
    """With --kernels: default the context of the recipe."""
    require_fused: Switch = False
    """End with an error where a layer's attention is not fused."""
    out: Path | None = None
    """Where bench.json and the picture are kept; default: bench/RECIPE-TIME."""
    json: Switch = False
    """Print everything as JSON."""
    optimizer: Annotated[OptimizerSettings, tyro.conf.Suppress] = field(default_factory=OptimizerSettings)


def main(argv: list[str]) -> int:
    options, file = parse_over_recipe(Bench, argv, _defaults, prog="prism bench", recipe=SMALLEST)
    recipe = chosen_recipe(options)
    arms = _check(options, recipe)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    out = options.out or Path("bench") / f"{file.name}-{stamp}"
    name = "kernels" if options.kernels else "bench"
    if (out / f"{name}.json").exists():
        raise InputError(f"{out / name}.json is there already; give another folder with --out, or remove it")
    from ..kernels.allocation import keep_freed_memory
    from ..training.device import torch_settings_kept

    keep_freed_memory()  # as `prism train` does
    with ScoreProgress() as progress, torch_settings_kept():
        found = (_kernels if options.kernels else _bench)(options, recipe, arms, progress)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{name}.json", found)
    written = [out / f"{name}.json"]
    lines = kernel_lines(found) if options.kernels else bench_lines(found)
    if not options.kernels:
        from ..benchmark.picture import draw

        written += draw(found, out)
    print(json.dumps(found) if options.json else "\n".join([*lines, "", *(f"written: {path}" for path in written)]))
    if options.require_fused and (plain := _plain_attention(found)):
        raise InputError(plain)  # after the figures are kept
    return 0


def _defaults(file: RecipeFile) -> Bench:
    options = recipe_options(replace(file.recipe, model=replace(file.recipe.model, schedule=ModelSettings().schedule)))
    data = options["data"]
    return Bench(**{**options, "data": replace(data, paths=())}, recipe=file.name)  # no text is read


def _check(options: Bench, recipe: Recipe) -> list[Arm]:
    """The arms. Raises InputError with everything that cannot be."""
    problems = options.bench.problems()
    if options.model.schedule != ModelSettings().schedule:
        problems.append(f"--schedule {options.model.schedule}: a benchmark takes its schedules as --arms")
    if "decode" in options.bench.work and recipe.model.context < 2:
        problems.append(f"context={recipe.model.context}: decoding takes a context of at least 2")
    if not options.kernels and (options.head_dims or options.contexts):
        problems.append("--head-dims and --contexts belong to --kernels")
    if options.kernels and options.require_fused:
        problems.append("--require-fused is about the layers of schedules, and --kernels times none; leave one out")
    d_model = recipe.model.d_model
    problems += [
        f"--head-dims {each} does not divide d_model={d_model}" for each in options.head_dims if d_model % max(each, 1)
    ]
    problems += [
        f"--{name} {each} must be at least 1"
        for name, values in (("head-dims", options.head_dims), ("contexts", options.contexts))
        for each in values
        if each < 1
    ]
    if problems:
        raise InputError(problems)
    one_step = replace(recipe.training, tokens_per_step=recipe.training.micro_batch * recipe.model.context)
    replace(recipe, training=one_step).check()
    only_uniform = {text.strip() for text in options.arms} <= {BASELINE}
    if only_uniform:
        return [Arm(name=BASELINE, schedule=recipe.model.head_schedule(), role="baseline")]
    return parse_arms(options.arms, recipe.model)


def _bench(options: Bench, recipe: Recipe, arms: Sequence[Arm], progress: ScoreProgress) -> dict[str, Any]:
    from ..benchmark.bench import bench

    recipes = {arm.name: arm.recipe(recipe, seed=0, lr=recipe.optimizer.lr) for arm in arms}
    return bench(recipes, options.bench, vocab_size=vocab_size(recipe), say=progress.say)


def _plain_attention(found: dict[str, Any]) -> list[str]:
    """Every layer whose attention is not fused, in a sentence."""
    from ..benchmark.inspection import PLAIN

    return [
        f"arm {name}, layer {number}: {work} runs without a fused attention kernel (head dim "
        f"{entry['head_dims'][number - 1]}); take one of at most 256, a multiple of 8"
        for name, entry in found["arms"].items()
        for work, kernels in entry["kernels"].items()
        for number, kernel in enumerate(kernels, start=1)
        if kernel == PLAIN
    ]


def _kernels(options: Bench, recipe: Recipe, arms: Sequence[Arm], progress: ScoreProgress) -> dict[str, Any]:
    from ..benchmark.attention import time_kernels
    from ..benchmark.bench import machine_entry
    from ..benchmark.peak import device_peak
    from ..training.device import choose_device

    device = choose_device(recipe.device)
    peak = device_peak(device)
    d_model = recipe.model.d_model
    dims = options.head_dims or tuple(each for each in HEAD_DIMS if each <= d_model and d_model % each == 0)
    rows = time_kernels(
        d_model=d_model,
        head_dims=dims or tuple(sorted({dim for arm in arms for dim in arm.schedule.head_dims})),
        contexts=options.contexts or (recipe.model.context,),
        batch=recipe.training.micro_batch,
        device=device,
        peak=peak.flops if peak else None,
        rounds=options.bench.rounds,
        turn_seconds=options.bench.turn_seconds,
        say=progress.say,
    )
    return {**machine_entry(device, peak), "d_model": d_model, "rows": rows}
