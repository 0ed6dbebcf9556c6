"""The run folder: its settings, and checkpoints that are whole or not there.

    recipe.yaml  environment.json  data/  metrics.jsonl  checkpoints/step-NNNNNN/  checkpoints/latest
    document_losses.json (of the last evaluation)

A checkpoint holds the model with its identity (checkpoint.py), the optimizer and the position. It is written under a
temporary name, brought to the disk and renamed; `latest` moves last. No random state is kept because none is used
after the start: data order is a function of (seed, step), and there is no dropout. `data/` is there where the text was
prepared for this run alone.
"""

import platform
import shutil
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..checkpoint import (
    CHECKPOINTS,
    IDENTITY,
    LATEST,
    GoldenError,
    latest_checkpoint,
    load_model,
    save_model,
    step_name,
    step_of,
)
from ..errors import DivergedError, InputError, RunError
from ..files import (
    DATA,
    RECIPE,
    checksums,
    read_json,
    settle,
    verify,
    write_json,
    write_text,
)
from ..machine import processor
from ..model.modeling_prism import PrismForCausalLM
from ..settings import from_mapping, read_yaml, to_mapping, to_yaml
from .metrics import DOCUMENTS, ENVIRONMENT, METRICS, read_metrics
from .optimizer import OPTIMIZER_KEYS
from .origin import Origin
from .recipe import Recipe

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Position:
    """How far a run is."""

    step: int = 0
    seconds: float = 0.0
    """Seconds of training so far, evaluation and saving not counted."""
    losses: tuple[float, ...] = ()
    """Of the steps since the last line of metrics, so that the next line is the one of a run that never stopped."""
    logged_seconds: float = 0.0
    """`seconds` at the last line of metrics."""
    batches: str = ""
    """A hash of the token ids of all batches so far, in their order."""
    save_seconds: float = 0.0
    """Seconds that saving has taken so far."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / DATA
        self.metrics = path / METRICS
        self.documents = path / DOCUMENTS
        self.checkpoints = path / CHECKPOINTS

    def changes(self, origin: Origin, *, allow: Collection[str] = ()) -> list[str]:
        """How recipe and text differ from those of the run that is here, by the kinds in `allow`, in words.

        Raises InputError naming both values of what differs and is of no such kind (see origin.py).
        """
        path = self.path / RECIPE
        if not path.exists():
            return []
        found = {**self._text(), "recipe": to_mapping(from_mapping(Recipe, read_yaml(path), where=str(path)))}
        return origin.accepted_changes(found, where=str(self.path), allow=allow)

    def accept(self, origin: Origin, *, allow: Collection[str] = ()) -> None:
        """Record recipe and text of a new run, or accepted changes of an old one. Raises InputError as `changes`."""
        changes = self.changes(origin, allow=allow)
        path, place = self.path / RECIPE, self.path / ENVIRONMENT
        if changes or not path.exists():
            write_text(path, to_yaml(origin.recipe))
        if changes or not place.exists():
            write_json(place, environment() | {"data_fingerprint": origin.data_fingerprint})

    def _text(self) -> dict[str, Any]:
        """What is known of the run's text: its fingerprint, and in detail what the newest checkpoint says of it."""
        place, latest = self.path / ENVIRONMENT, self.latest()
        fingerprint = read_json(place).get("data_fingerprint") if place.exists() else None
        of = read_json(latest / STATE).get("of", {}) if latest and (latest / STATE).exists() else {}
        if fingerprint is None:
            return {}
        return of if of.get("data_fingerprint") == fingerprint else {"data_fingerprint": fingerprint}

    def final_record(self) -> dict[str, Any] | None:
        """The record that ends the metrics of a finished run: its final evaluation."""
        records = read_metrics(self.metrics) if self.metrics.exists() else []
        return records[-1] if records and records[-1].get("final") else None

    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        return latest_checkpoint(self.path)

    def start(self, say: Callable[[str], None]) -> Path | None:
        """The checkpoint to go on from; what is no whole checkpoint is skipped, and told to `say`."""
        complete, latest = self.complete(), self.latest()
        for rest in sorted({*self.checkpoints.glob("step-*"), *self.checkpoints.glob(".step-*")} - {*complete}):
            say(f"{rest} is not complete (it has no {STATE} yet) and is skipped")
        if complete and latest not in complete and (latest is None or latest.is_dir()):
            return complete[-1]
        return latest

    def save(
        self,
        model: PrismForCausalLM,
        tensors: Mapping[str, torch.Tensor],
        position: Position,
        *,
        origin: Origin,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> Path:
        """Write a checkpoint of the model and the optimizer's `tensors`, point `latest` to it, and prune.

        Where that fails, `say` is told, all but the newest checkpoint are removed, and it is tried again. Raises
        RunError where it cannot be written, and DivergedError where the model's answers are not finite; the newest
        checkpoint stays.
        """
        try:
            final = self._write(model, tensors, position, origin)
        except RunError as error:
            removed = [] if isinstance(error, DivergedError) else self.prune(1, origin.recipe.training.keep_every)
            if not removed:
                raise
            say(f"warning: {error}; removed {', '.join(path.name for path in removed)}, trying again")
            final = self._write(model, tensors, position, origin)
        self.prune(origin.recipe.training.keep, origin.recipe.training.keep_every)
        return final

    def _write(
        self, model: PrismForCausalLM, tensors: Mapping[str, torch.Tensor], position: Position, origin: Origin
    ) -> Path:
        name = step_name(position.step)
        temporary, final = self.checkpoints / f".{name}.tmp", self.checkpoints / name
        try:
            self._remove_unfinished()
            temporary.mkdir(parents=True)
            identity = {"data_fingerprint": origin.data_fingerprint, "step": position.step}
            save_model(model, temporary, origin=identity)
            save_file(dict(tensors), temporary / OPTIMIZER)
            sums = checksums([temporary / OPTIMIZER, temporary / IDENTITY])
            of = {"recipe": to_mapping(origin.recipe), **origin.text()}
            write_json(temporary / STATE, {**asdict(position), "of": of, "sha256": sums})
            settle(temporary)
            shutil.rmtree(final, ignore_errors=True)  # a step that is trained again after an edit of `latest`
            temporary.rename(final)
            write_text(self.checkpoints / LATEST, name)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{self.path}: the checkpoint of step {position.step} was not written: {error}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final

    def _remove_unfinished(self) -> None:
        """Take away what processes left that were killed while they saved; the lock says that they are gone."""
        for rest in self.checkpoints.glob(".*.tmp"):
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()

    def complete(self) -> list[Path]:
        """Every complete checkpoint, the oldest first."""
        found = [path for path in self.checkpoints.glob("step-*") if (path / STATE).exists()]
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def prune(self, keep: int, keep_every: int = 0) -> list[Path]:
        """Remove all checkpoints but the newest `keep`, every `keep_every`-th step's and `latest`; returns them."""
        latest = self.latest()
        removed = [
            old
            for old in self.complete()[:-keep]
            if old != latest and not (keep_every and step_of(old) % keep_every == 0)
        ]
        for old in removed:
            shutil.rmtree(old, ignore_errors=True)
        return removed

    def load(
        self, checkpoint: Path, origin: Origin, allow: Collection[str] = ()
    ) -> tuple[PrismForCausalLM, dict[str, torch.Tensor], Position, list[str]]:
        """Model, optimizer tensors and position of a checkpoint, and the accepted changes since.

        Raises InputError for a damaged one, and for one of another recipe or text but for the kinds in `allow`.
        """
        try:
            state = read_json(checkpoint / STATE)
            verify(checkpoint, {IDENTITY: "", OPTIMIZER: ""} | state.pop("sha256", {}))  # "" fits no file
            identity, of = read_json(checkpoint / IDENTITY), state.pop("of", None)
            position = from_mapping(Position, state, where=str(checkpoint / STATE))
            if position.step != identity.get("step"):
                raise InputError(f"{checkpoint / STATE}: step {position.step}, but {IDENTITY} says {identity['step']}")
            if not isinstance(of, dict) or of.get("data_fingerprint") != identity.get("data_fingerprint"):
                raise InputError(f"{checkpoint / STATE} does not say which recipe and text it is of; restore it")
            model = load_model(checkpoint, accept_golden="golden" in allow)
            tensors = load_file(checkpoint / OPTIMIZER)
            _check_optimizer(model, tensors)
        except GoldenError as error:
            raise InputError([*error.problems, "to go on with it all the same, add --allow golden"]) from None
        except InputError as error:
            others = [path.name for path in self.complete() if path != checkpoint]
            remedy = f"to go on from {' or '.join(others)}, write that name into {self.checkpoints / LATEST}"
            raise InputError([*error.problems, remedy] if others else error.problems) from None
        return model, tensors, position, origin.accepted_changes(of, where=str(checkpoint), allow=allow)


def _check_optimizer(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():
        for key in OPTIMIZER_KEYS:
            tensor = tensors.get(f"{name}:{key}")
            if tensor is None:
                raise InputError(f"{OPTIMIZER} has no {key} of {name}; the checkpoint is damaged or of another model")
            if key != "step" and tensor.shape != parameter.shape:
                raise InputError(
                    f"{OPTIMIZER}: {key} of {name} has the shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}"
                )


def environment() -> dict[str, Any]:
    """Versions and machine, for the record."""
    packages = ("prism-transformer", "torch", "transformers", "numpy")
    return {
        "versions": {name: _version(name) for name in packages} | {"python": platform.python_version()},
        "platform": platform.platform(),
        "processor": processor(),
        "host": socket.gethostname(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _version(package: str) -> str | None:
    """None for one that lies on the path without having been installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
