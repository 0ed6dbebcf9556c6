"""`prism train --recipe NAME|FILE --out FOLDER`: one model, by one process or by those that torchrun starts."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..cost import short
from ..errors import InputError, RunError, Stopped, ending
from ..files import RECIPE, size_text
from ..settings import to_yaml
from ..training.fit import Fit, fit, main_memory
from ..training.origin import Allowed
from ..training.recipe import Recipe
from ..training.recipe_files import RecipeFile
from ..wording import count
from .options import Switch, argument, given_options
from .recipes import RecipeOptions, chosen_recipe, parse_over_recipe, recipe_options, vocab_size

_NO_SETTINGS = ("--resume", "--verify", "--allow", "--dry-run", "--ranks", "--device-memory", "--json")
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Train(RecipeOptions):
    """Train one model. Every setting of the recipe can be given here too."""

    recipe: str = "laptop"
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file."""
    out: Path | None = None
    """The run folder; the same command again goes on where the run was."""
    resume: Path | None = None
    """Go on with the run in this folder, with its own settings."""
    verify: Switch = False
    """With --resume: prove that the run goes on exactly. Trains its last piece again, twice, and compares."""
    allow: tuple[Allowed, ...] = ()
    """Go on although this differs from the run: horizon (--tokens), recipe, schedule, data, golden."""
    dry_run: Switch = False
    """Only say what would be trained, what it takes, and whether it fits a device."""
    ranks: int = 1
    """With --dry-run: the number of processes, one a device, that torchrun would start."""
    device_memory: float | None = None
    """With --dry-run: memory of one GPU in GiB; default: that of this machine's device."""
    json: Switch = False
    """Print the final record (or the plan of a dry run, or the proof) as JSON."""


def main(argv: list[str]) -> int:
    try:
        return _main(argv)
    except (InputError, RunError, Stopped) as error:
        if int(os.environ.get("RANK", 0)) == 0:
            raise
        end = ending(error)  # rank 0 tells it for all
        return end[0] if end else 1


def _main(argv: list[str]) -> int:
    run = _resumed_run(argv)
    recipe_of_run = str(run / RECIPE) if run else "laptop"
    options, _ = parse_over_recipe(Train, argv, _defaults, prog="prism train", recipe=recipe_of_run)
    recipe, out = chosen_recipe(options), run or options.out
    if options.dry_run:
        memory = options.device_memory
        if options.ranks < 1 or (memory is not None and memory <= 0):
            raise InputError("--ranks must be at least 1, and --device-memory above 0")
        recipe.check(options.ranks)
        return _dry_run(recipe, options)
    if options.ranks != 1 or options.device_memory is not None:
        raise InputError(
            "--ranks and --device-memory are for --dry-run; several processes are started by torchrun "
            "(torchrun --standalone --nproc-per-node=N -m prism_transformer train …)"
        )
    recipe.check()
    if options.verify:
        if run is None:
            raise InputError("--verify proves a run that is there: give it with --resume RUN")
        return _verify(recipe, run, options)
    if out is None:
        raise InputError("--out is missing: name the folder of the run, for example --out runs/first")
    return _train(recipe, out, options)


def _defaults(file: RecipeFile) -> Train:
    return Train(**recipe_options(file.recipe), recipe=file.name)


def _resumed_run(argv: list[str]) -> Path | None:
    """The value of --resume. Raises InputError for a folder that is no run, and for settings other than the run's."""
    given = argument(argv, "--resume", "the folder of a run")
    if given is None:
        return None
    run, problems = Path(given), []
    if not (run / RECIPE).exists():
        problems.append(f"{run} is no run: it has no {RECIPE}; start one with --recipe NAME --out {run}")
    names = given_options(argv)
    others = [name for name in names if name not in _NO_SETTINGS]
    if others and ("--allow" not in names or "--recipe" in names or "--out" in names):
        problems.append(
            f"--resume goes on with the run's own settings; leave out {', '.join(others)}, or accept the change: "
            "--allow horizon for --tokens, --allow recipe for others"
        )
    if problems:
        raise InputError(problems)
    return run


def _train(recipe: Recipe, out: Path, options: Train) -> int:
    from ..kernels.allocation import keep_freed_memory
    from ..training.loop import train  # imports torch: after the settings are known to be right
    from .progress import RunProgress

    keep_freed_memory()
    if int(os.environ.get("RANK", 0)) > 0:  # rank 0 writes and tells
        train(recipe, out, allow=options.allow)
        return 0
    with RunProgress(recipe) as progress:
        final = train(recipe, out, on_record=progress.show, say=progress.say, allow=options.allow)
    if options.json:
        print(json.dumps(final))
    else:
        bits = final.get("val_bits_per_byte")
        in_bits = f" ({bits:.4f} bits per byte)" if bits else ""
        print(f"validation loss {final['val_loss']:.4f} nats per token{in_bits} after {final['tokens']:,} tokens")
        print(f"run: {out}")
        if saving := final.get("save_seconds"):
            share = saving / (saving + final["seconds"])
            print(f"checkpoints took {saving:.1f} s, {share:.1%} of the time")
    return 0


def _verify(recipe: Recipe, run: Path, options: Train) -> int:
    from ..training.proof import verify
    from .progress import RunProgress

    with RunProgress(recipe) as progress:
        proof = verify(recipe, run, say=progress.say, allow=options.allow)
    if proof is None:  # not rank 0
        return 0
    if options.json:
        print(json.dumps(asdict(proof) | {"holds": proof.holds}))
        return 0 if proof.holds else 3
    for comparison in proof.comparisons:
        counts = f"{count(comparison.lines, 'line')} of metrics, {count(comparison.tensors, 'tensor')}"
        print(f"{comparison.name}: {'they differ' if comparison.differences else 'the same bit for bit'} ({counts})")
        for difference in comparison.differences:
            print(f"  {difference}")
    for difference in proof.other_machine if not proof.holds else ():
        print(f"this machine is another one, which may change last digits; {difference}")
    return 0 if proof.holds else 3


def _dry_run(recipe: Recipe, options: Train) -> int:
    size = vocab_size(recipe)
    schedule = recipe.model.head_schedule()
    cost = recipe.model.cost(size)
    fitting = _fit(recipe, size, options)
    plan: dict[str, Any] = {
        "parameters": cost.parameters,
        "head_schedule": str(schedule),
        "head_dims": list(schedule.head_dims),
        "vocab_size": recipe.model.rows(size),
        "tokens": recipe.trained_tokens,
        "steps": recipe.steps,
        "tokens_per_step": recipe.training.tokens_per_step,
        "accumulation": recipe.accumulation(options.ranks),
        "memory_bytes": fitting.memory.total,
        "fit": asdict(fitting) | {"fits": fitting.fits},
    }
    if options.json:
        print(json.dumps(plan))
        return 0
    dims = ", ".join(str(dim) for dim in sorted(set(schedule.head_dims), reverse=True))
    print(f"{short(cost.parameters)} parameters, heads per layer {schedule}, head dims {dims}")
    print(
        f"{recipe.trained_tokens:,} tokens in {recipe.steps:,} steps of {recipe.training.tokens_per_step:,}: "
        f"{count(recipe.accumulation(options.ranks), 'micro-batch')} of {recipe.training.micro_batch} x "
        f"{recipe.model.context}"
    )
    _print_fit(fitting)
    print()
    print(to_yaml(recipe), end="")
    return 0


def _fit(recipe: Recipe, size: int, options: Train) -> Fit:
    """On a GPU of the memory that was named, or on this machine's device."""
    wanted = recipe.device.dtype
    if options.device_memory is not None:
        low, memory = wanted != "float32", int(options.device_memory * GIB)
        return fit(recipe, size, ranks=options.ranks, device_bytes=memory, on_cpu=False, low=low)
    import torch

    from ..kernels.choose import loss_is_in_chunks
    from ..training.device import choose_device

    device = choose_device(recipe.device)
    low, of_gpu = device.dtype == torch.bfloat16, device.memory()
    memory = main_memory() // options.ranks if of_gpu is None else of_gpu
    on_cpu, in_chunks = device.device.type == "cpu", loss_is_in_chunks(device.device)
    return fit(recipe, size, ranks=options.ranks, device_bytes=memory, on_cpu=on_cpu, low=low, in_chunks=in_chunks)


def _print_fit(fitting: Fit) -> None:
    ways = {"one": "one device", "ddp": f"each of {fitting.ranks} devices (DDP)"}
    where = ways.get(fitting.way, f"each of {fitting.ranks} devices (FSDP2)")
    total = fitting.memory.total
    unit, size = ("GiB", GIB) if total >= GIB else ("MiB", 2**20)
    print(f"memory in training, about, on {where}, products in {fitting.dtype}:")
    for name, n_bytes in asdict(fitting.memory).items():
        if n_bytes:
            print(f"  {name:12}{n_bytes / size:9.2f} {unit}")
    print(f"  {'total':12}{total / size:9.2f} {unit} of {fitting.device_bytes / GIB:.1f} GiB")
    print("it fits" if fitting.fits else f"it does not fit; {fitting.remedy}")
    print(f"a checkpoint takes {size_text(fitting.checkpoint_bytes)} on the disk")
