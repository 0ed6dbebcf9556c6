"""The run folder: its lock, its settings, and checkpoints that are whole or not there.

    recipe.yaml  environment.json  data/  metrics.jsonl  checkpoints/step-NNNNNN/  checkpoints/latest
    document_losses.json (of the last evaluation)

A checkpoint holds the model with its identity (checkpoint.py), the optimizer and the position. It is written under a
temporary name, brought to the disk and renamed; `latest` moves last. No random state is kept because none is used
after the start: data order is a function of (seed, step), and there is no dropout. `data/` is there where the text was
prepared for this run alone.
"""

import os
import platform
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..checkpoint import CHECKPOINTS, IDENTITY, LATEST, latest_checkpoint, load_model, save_model
from ..errors import InputError, RunError
from ..files import checksums, read_json, sync_folder, verify, write_json, write_text
from ..machine import processor
from ..model.modeling_prism import PrismForCausalLM
from ..settings import differences, from_mapping, read_yaml, to_mapping, to_yaml
from .metrics import DOCUMENTS, ENVIRONMENT, METRICS, RECIPE, read_metrics
from .recipe import Recipe

DATA = "data"
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


class InUseError(InputError):
    """A live process has the run."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / DATA
        self.metrics = path / METRICS
        self.documents = path / DOCUMENTS
        self.checkpoints = path / CHECKPOINTS

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process. Where no run begins, nothing is left of the lock and of a new, empty folder.

        Raises InUseError where a live process has the run, and InputError for a folder that holds something else.
        """
        self._refuse_foreign()
        is_new = not self.path.exists()
        lock, owner = FileLock(self.path / ".lock"), self.path / ".lock-owner"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            name = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
            raise InUseError(f"{self.path} is in use by {name}; wait for it, or stop it") from None
        except OSError as error:
            raise InputError(f"{self.path} cannot be used: {error.strerror}; choose another folder") from None
        try:
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.release()
            if not (self.path / RECIPE).exists():  # no run began here
                (self.path / ".lock").unlink(missing_ok=True)
                if is_new and not any(self.path.iterdir()):
                    self.path.rmdir()

    def _refuse_foreign(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; give a folder")
        if not self.path.exists() or (self.path / RECIPE).exists():
            return
        others = sorted(p.name for p in self.path.iterdir() if not p.name.startswith(".") and p.name != DATA)
        if others:
            raise InputError(f"{self.path} is no run and not empty ({', '.join(others[:3])}); use a new folder")

    def accept(self, recipe: Recipe, data_fingerprint: str) -> None:
        """Record the settings of a new run, or check that an old one has the same. Raises InputError naming both."""
        path, place = self.path / RECIPE, self.path / ENVIRONMENT
        if path.exists():
            found, wanted = to_mapping(from_mapping(Recipe, read_yaml(path), where=str(path))), to_mapping(recipe)
            old_data = read_json(place).get("data_fingerprint") if place.exists() else data_fingerprint
            if old_data == data_fingerprint:
                del found["data"], wanted["data"]  # what counts is what was read, not where it lay
            else:
                found["data"]["fingerprint"], wanted["data"]["fingerprint"] = old_data, data_fingerprint
            changed = differences(found, wanted)
            if changed:
                lines = "\n  ".join(changed)
                raise InputError(f"{self.path} holds a run with other settings; use another folder:\n  {lines}")
        else:
            write_text(path, to_yaml(recipe))
        if not place.exists():
            write_json(place, environment() | {"data_fingerprint": data_fingerprint})

    def final_record(self) -> dict[str, Any] | None:
        """The record that ends the metrics of a finished run: its final evaluation."""
        records = read_metrics(self.metrics) if self.metrics.exists() else []
        return records[-1] if records and records[-1].get("final") else None

    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        return latest_checkpoint(self.path)

    def save(
        self, model: PrismForCausalLM, optimizer: torch.optim.Optimizer, position: Position, *, data: str, keep: int
    ) -> Path:
        """Write a checkpoint, point `latest` to it, and remove all but the newest `keep`.

        Raises RunError where it cannot be written, and DivergedError where the model's answers are not finite; the
        checkpoints before it stay.
        """
        name = f"step-{position.step:06d}"
        temporary, final = self.checkpoints / f".{name}.tmp", self.checkpoints / name
        try:
            self._remove_unfinished()
            temporary.mkdir(parents=True)
            save_model(model, temporary, origin={"data_fingerprint": data, "step": position.step})
            save_file(optimizer_tensors(model, optimizer), temporary / OPTIMIZER)
            sums = checksums([temporary / OPTIMIZER, temporary / IDENTITY])
            write_json(temporary / STATE, {**asdict(position), "sha256": sums})
            for file in temporary.iterdir():
                _sync(file)
            sync_folder(temporary)
            shutil.rmtree(final, ignore_errors=True)  # a step that is trained again after an edit of `latest`
            temporary.rename(final)
            write_text(self.checkpoints / LATEST, name)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{self.path}: the checkpoint of step {position.step} was not written: {error}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._prune(keep)
        return final

    def _remove_unfinished(self) -> None:
        """Take away what processes left that were killed while they saved; the lock says that they are gone."""
        for rest in self.checkpoints.glob(".*.tmp"):
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()

    def _complete(self) -> list[Path]:
        """Every complete checkpoint, the oldest first."""
        found = [path for path in self.checkpoints.glob("step-*") if (path / STATE).exists()]
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def _prune(self, keep: int) -> None:
        latest = self.latest()
        for old in self._complete()[:-keep]:
            if old != latest:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, checkpoint: Path, *, data: str) -> tuple[PrismForCausalLM, dict[str, torch.Tensor], Position]:
        """Model, optimizer tensors and position of a checkpoint. Raises InputError for a damaged or foreign one."""
        try:
            state = read_json(checkpoint / STATE)
            verify(checkpoint, {IDENTITY: "", OPTIMIZER: ""} | state.pop("sha256", {}))  # "" fits no file
            identity = read_json(checkpoint / IDENTITY)
            position = from_mapping(Position, state, where=str(checkpoint / STATE))
            if position.step != identity.get("step"):
                raise InputError(f"{checkpoint / STATE}: step {position.step}, but {IDENTITY} says {identity['step']}")
            model, tensors = load_model(checkpoint), load_file(checkpoint / OPTIMIZER)
        except InputError as error:
            others = [path.name for path in self._complete() if path != checkpoint]
            remedy = f"to go on from {' or '.join(others)}, write that name into {self.checkpoints / LATEST}"
            raise InputError([*error.problems, remedy] if others else error.problems) from None
        if identity.get("data_fingerprint") != data:
            raise InputError(
                f"{checkpoint} was trained on data {identity.get('data_fingerprint')}, but the data here is {data}; "
                "give the same data, or start a new run"
            )
        return model, tensors, position


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state by the names of the parameters: "model.norm.weight:exp_avg" and so on."""
    return {
        f"{name}:{key}": value.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]
) -> None:
    """Fill a fresh optimizer with saved state. Raises InputError for a tensor that is missing."""
    for name, parameter in model.named_parameters():
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{name}:{key}" not in tensors:
                raise InputError(f"{OPTIMIZER} has no {key} of {name}; the checkpoint is damaged or of another model")
            state[key] = tensors[f"{name}:{key}"].to(parameter.device, copy=True)  # aligned, as torch allocates
        optimizer.state[parameter] = state


def environment() -> dict[str, Any]:
    """Versions and machine, for the record."""
    packages = ("prism-transformer", "torch", "transformers", "numpy")
    return {
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
        "platform": platform.platform(),
        "processor": processor(),
        "host": socket.gethostname(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _sync(file: Path) -> None:
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())
