"""The proof that a run goes on exactly: a piece of it is trained again, twice, and compared with what it was.

The piece lies between the two newest checkpoints, or between the start and the only one. Compared are the lines of
metrics (loss, gradient norm, learning rate, and the hash of all token ids up to there) and every saved tensor, bit for
bit. The run itself is left as it is.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..checkpoint import step_name, step_of
from ..errors import InputError
from ..files import read_json
from ..wording import count
from .build import shared_corpus
from .device import torch_settings_kept
from .loop import begin_or_recognise, opened, own_device, silent
from .metrics import ENVIRONMENT, read_metrics
from .recipe import Recipe
from .session import Say, Session
from .state import OPTIMIZER, RunFolder, environment
from .world import joined, lost_ranks_are_run_errors

SCRATCH = ".verify"
_COMPARED = ("batches", "loss", "grad_norm", "lr")


@dataclass(frozen=True)
class Comparison:
    """Two trainings of the same steps."""

    name: str
    lines: int
    """Lines of metrics compared."""
    tensors: int
    """Tensors compared: weights and moments."""
    differences: tuple[str, ...]
    """Where they differ first, in the lines and in the tensors; empty where they are bit for bit the same."""


@dataclass(frozen=True)
class Proof:
    first_step: int
    last_step: int
    comparisons: tuple[Comparison, ...]
    other_machine: tuple[str, ...]
    """What this machine has other than the one that the run began on: that may change the last digits."""

    @property
    def holds(self) -> bool:
        return not any(comparison.differences for comparison in self.comparisons)


def verify(recipe: Recipe, out: Path, *, say: Say = print, allow: Collection[str] = ()) -> Proof | None:
    """Train the last piece of the run in `out` again, twice, and compare. None on all ranks but the first.

    `allow` takes "golden". Other differences from the checkpoint were accepted when the run went on from it.

    Raises InputError where the run has no checkpoint, or is not of this recipe and its text.
    """
    with torch_settings_kept(), joined(recipe.device.device) as world, lost_ranks_are_run_errors(world):
        world.together(lambda: recipe.check(world.size))  # together: who leaves early breaks the others' connections
        say = say if world.is_main else silent
        with opened(RunFolder(out), world, say) as run:
            device = own_device(recipe.device, world)
            corpus = shared_corpus(recipe, run.data, world, say)
            world.on_main(lambda: begin_or_recognise(run, recipe, corpus, ()))
            first, last = world.on_main(lambda: piece(run))
            say(f"training steps {first + 1:,} to {last:,} again, twice")
            training = replace(recipe.training, evaluations=1, save_minutes=1e9, keep_every=0)
            bare, start = replace(recipe, training=training), run.checkpoints / step_name(first) if first else None
            accepted = ("recipe", "horizon", "schedule", "data", *allow)
            folders = [RunFolder(out / SCRATCH / name) for name in ("first", "second")]
            try:
                for folder in folders:
                    world.on_main(lambda folder=folder: make_empty(folder.path))  # type: ignore[misc]
                    Session(
                        bare, folder, corpus, device, silent, silent, world=world, allow=accepted, checkpoint=start
                    ).run_to(last)
                return compared(run, folders, first, last) if world.is_main else None
            finally:
                world.on_main(lambda: shutil.rmtree(out / SCRATCH, ignore_errors=True))


def piece(run: RunFolder) -> tuple[int, int]:
    """The steps after which the piece begins (0: at the start of the run) and ends."""
    steps = [step_of(checkpoint) for checkpoint in run.complete()]
    if not steps:
        raise InputError(f"{run.path} has no checkpoint yet: there is nothing to compare with")
    return (steps[-2] if len(steps) > 1 else 0), steps[-1]


def make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def compared(run: RunFolder, again: Sequence[RunFolder], first: int, last: int) -> Proof:
    """The run beside both repetitions, and these beside each other."""
    of_run, one, other = ((lines_of(folder, first, last), tensors_of(folder, last)) for folder in (run, *again))
    pairs = [("the two repetitions", one, other), ("run and repetition", of_run, one)]
    comparisons = tuple(
        Comparison(name, len(a[0]), len(a[1]), (*line_differences(a[0], b[0]), *tensor_differences(a[1], b[1])))
        for name, a, b in pairs
    )
    then, now = read_json(run.path / ENVIRONMENT), environment()
    facts = [(key, then.get(key), now[key]) for key in ("processor", "gpu", "platform", "versions")]
    return Proof(first, last, comparisons, tuple(f"{key}: {old} -> {new}" for key, old, new in facts if old != new))


def lines_of(run: RunFolder, first: int, last: int) -> list[dict[str, Any]]:
    records = read_metrics(run.metrics)
    return [line for line in records if "loss" in line and first < line["step"] <= last]


def tensors_of(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    folder = run.checkpoints / step_name(step)
    return load_file(folder / "model.safetensors") | load_file(folder / OPTIMIZER)


def line_differences(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first line in which two trainings differ, and in what."""
    for a, b in zip(one, other, strict=False):
        if a["step"] != b["step"]:
            return [f"a line of step {a['step']} against one of step {b['step']}"]
        differing = [f"{key} {a.get(key)} and {b.get(key)}" for key in _COMPARED if a.get(key) != b.get(key)]
        if differing:
            return [f"first in the line of step {a['step']}: {', '.join(differing)}"]
    return [] if len(one) == len(other) else [f"{count(len(one), 'line')} against {len(other)}"]


def tensor_differences(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> list[str]:
    """The first tensor in which two checkpoints differ, by how much, and how many more do."""
    names = [name for name in one if name not in other or not torch.equal(one[name], other[name])]
    names += [name for name in other if name not in one]
    if not names:
        return []
    name = names[0]
    if name not in one or name not in other:
        return [f"{len(names)} tensors differ, first {name}: only one has it"]
    distance = float((one[name] - other[name]).abs().max())
    return [f"{len(names)} of {len(one)} tensors differ, first {name} by at most {distance:.3g}"]
