"""`prism train --recipe NAME|FILE --out FOLDER`: one model."""

import json
from dataclasses import dataclass
from pathlib import Path

from ..cost import short
from ..errors import InputError
from ..settings import from_mapping, read_yaml, to_yaml
from ..training.recipe import Recipe, RecipeFile
from .recipes import RecipeOptions, chosen_recipe, parse_over_recipe, recipe_options, vocab_size


@dataclass(frozen=True, kw_only=True)
class Train(RecipeOptions):
    """Train one model. Every setting of the recipe can be given here too."""

    recipe: str = "laptop"
    """Name of a recipe (demo, laptop, small, medium, large) or a YAML file."""
    out: Path | None = None
    """The run folder; the same command again goes on where the run was."""
    resume: Path | None = None
    """Go on with the run in this folder, with its own settings."""
    dry_run: bool = False
    """Only say what would be trained and what it takes."""
    json: bool = False
    """Print the final record (or the plan of a dry run) as JSON."""


def main(argv: list[str]) -> int:
    options, _ = parse_over_recipe(Train, argv, _defaults, prog="prism train", recipe="laptop")
    recipe, out = chosen_recipe(options), options.out
    if options.resume is not None:
        recipe, out = _recipe_of(options.resume, argv), options.resume
    recipe.check()
    if options.dry_run:
        return _dry_run(recipe, options)
    if out is None:
        raise InputError("--out is missing: name the folder of the run, for example --out runs/first")
    return _train(recipe, out, options)


def _defaults(file: RecipeFile) -> Train:
    return Train(**recipe_options(file.recipe), recipe=file.name)


def _recipe_of(run: Path, argv: list[str]) -> Recipe:
    """The recipe of the run to go on with. Raises InputError for a folder that is none, and for other settings."""
    path = run / "recipe.yaml"
    problems = []
    if not path.exists():
        problems.append(f"{run} is no run: it has no recipe.yaml; start one with --recipe NAME --out {run}")
    names = [word.partition("=")[0] for word in argv if word.startswith("--")]
    if others := [name for name in names if name not in ("--resume", "--dry-run", "--json")]:
        problems.append(f"--resume goes on with the run's own settings; leave out {', '.join(others)}")
    if problems:
        raise InputError(problems)
    return from_mapping(Recipe, read_yaml(path), where=str(path))


def _train(recipe: Recipe, out: Path, options: Train) -> int:
    from ..kernels.allocation import keep_freed_memory
    from ..training.loop import train  # imports torch: after the settings are known to be right
    from .progress import RunProgress

    keep_freed_memory()
    with RunProgress(recipe) as progress:
        final = train(recipe, out, on_record=progress.show, say=progress.say)
    if options.json:
        print(json.dumps(final))
    else:
        bits = final.get("val_bits_per_byte")
        in_bits = f" ({bits:.4f} bits per byte)" if bits else ""
        print(f"validation loss {final['val_loss']:.4f} nats per token{in_bits} after {final['tokens']:,} tokens")
        print(f"run: {out}")
    return 0


def _dry_run(recipe: Recipe, options: Train) -> int:
    size = vocab_size(recipe)
    schedule = recipe.model.head_schedule()
    cost = recipe.model.cost(size)
    memory = recipe.model.memory(size, micro_batch=recipe.training.micro_batch, activation_bytes=4)
    plan = {
        "parameters": cost.parameters,
        "head_schedule": str(schedule),
        "head_dims": list(schedule.head_dims),
        "vocab_size": recipe.model.rows(size),
        "tokens": recipe.trained_tokens,
        "steps": recipe.steps,
        "tokens_per_step": recipe.training.tokens_per_step,
        "accumulation": recipe.accumulation(),
        "memory_bytes": memory.total,
    }
    if options.json:
        print(json.dumps(plan))
        return 0
    dims = ", ".join(str(dim) for dim in sorted(set(schedule.head_dims), reverse=True))
    print(f"{short(cost.parameters)} parameters, heads per layer {schedule}, head dims {dims}")
    print(
        f"{recipe.trained_tokens:,} tokens in {recipe.steps:,} steps of {recipe.training.tokens_per_step:,} tokens: "
        f"{recipe.accumulation()} micro-batches of {recipe.training.micro_batch} x {recipe.model.context}"
    )
    print(f"memory in training: about {memory.total / 2**30:.1f} GiB on one device, in float32")
    print()
    print(to_yaml(recipe), end="")
    return 0
