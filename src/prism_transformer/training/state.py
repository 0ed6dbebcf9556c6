"""The run folder: its lock, its settings, and checkpoints that are whole or not there.

    recipe.yaml  metrics.jsonl  environment.json  checkpoints/step-NNNNNN/  checkpoints/latest

A checkpoint holds the model with its identity (checkpoint.py), the optimizer and the position. It is written under a
temporary name, brought to the disk and renamed; `latest` moves last. No random state is kept because none is used
after the start: data order is a function of (seed, step), and there is no dropout.
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
from safetensors.torch import load_file, save_file

from ..checkpoint import load_model, save_model
from ..errors import InputError, RunError
from ..files import read_json, sync_folder, write_json, write_text
from ..machine import processor
from ..model.modeling_prism import PrismForCausalLM
from ..settings import differences, read_yaml, to_mapping, to_yaml
from .metrics import METRICS, read_metrics
from .recipe import Recipe

RECIPE, ENVIRONMENT = "recipe.yaml", "environment.json"
OPTIMIZER, STATE, LATEST = "optimizer.safetensors", "state.json", "latest"


@dataclass(frozen=True)
class Position:
    """How far a run is."""

    step: int = 0
    seconds: float = 0.0
    """Seconds of training so far, evaluation and saving not counted."""


class InUseError(InputError):
    """A live process has the run."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / METRICS
        self.checkpoints = path / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process. Raises InUseError where a live process has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock, owner = FileLock(self.path / ".lock"), self.path / ".lock-owner"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            name = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
            raise InUseError(f"{self.path} is in use by {name}; wait for it, or stop it") from None
        try:
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.release()

    def accept(self, recipe: Recipe, data_fingerprint: str) -> None:
        """Record the settings of a new run, or check that an old one has the same.

        Raises InputError naming what differs, or a folder that holds something else.
        """
        wanted = to_mapping(recipe)
        wanted["data"] = {"fingerprint": data_fingerprint}  # what was read, not where it lay
        path = self.path / RECIPE
        if path.exists():
            found = read_yaml(path)
            found["data"] = {"fingerprint": read_json(self.path / ENVIRONMENT).get("data_fingerprint")}
            changed = differences(found, wanted)
            if changed:
                lines = "\n  ".join(changed)
                raise InputError(f"{self.path} holds a run with other settings; use another folder:\n  {lines}")
            return
        others = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
        if others:
            raise InputError(f"{self.path} is no run and not empty ({', '.join(sorted(others)[:3])}); use a new folder")
        write_json(self.path / ENVIRONMENT, environment() | {"data_fingerprint": data_fingerprint})
        write_text(path, to_yaml(recipe))

    def final_record(self) -> dict[str, Any] | None:
        """The record that ends the metrics of a finished run: its final evaluation."""
        records = read_metrics(self.metrics) if self.metrics.exists() else []
        return records[-1] if records and records[-1].get("final") else None

    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        pointer = self.checkpoints / LATEST
        return self.checkpoints / pointer.read_text(encoding="utf-8").strip() if pointer.exists() else None

    def save(
        self, model: PrismForCausalLM, optimizer: torch.optim.Optimizer, position: Position, *, data: str, keep: int
    ) -> Path:
        """Write a checkpoint, point `latest` to it, and remove all but the newest `keep`."""
        name = f"step-{position.step:06d}"
        temporary, final = self.checkpoints / f".{name}.tmp", self.checkpoints / name
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            save_model(model, temporary, origin={"data_fingerprint": data, "step": position.step})
            save_file(optimizer_tensors(model, optimizer), temporary / OPTIMIZER)
            write_json(temporary / STATE, asdict(position))
            for file in temporary.iterdir():
                _sync(file)
            sync_folder(temporary)
            shutil.rmtree(final, ignore_errors=True)  # a step that is trained again after an edit of `latest`
            temporary.rename(final)
            write_text(self.checkpoints / LATEST, name)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RunError(f"{self.path}: the checkpoint of step {position.step} was not written: {error}") from None
        self._prune(keep)
        return final

    def _prune(self, keep: int) -> None:
        complete = sorted(p for p in self.checkpoints.glob("step-*") if (p / STATE).exists())
        latest = self.latest()
        for old in complete[:-keep]:
            if old != latest:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, checkpoint: Path, *, data: str) -> tuple[PrismForCausalLM, dict[str, torch.Tensor], Position]:
        """Model, optimizer tensors and position of a checkpoint. Raises InputError for a damaged or foreign one."""
        identity = read_json(checkpoint / "identity.json")
        if identity.get("data_fingerprint") != data:
            raise InputError(
                f"{checkpoint} was trained on data {identity.get('data_fingerprint')}, but the data here is {data}; "
                "give the same data, or start a new run"
            )
        state = read_json(checkpoint / STATE)
        return load_model(checkpoint), load_file(checkpoint / OPTIMIZER), Position(state["step"], state["seconds"])


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
            state[key] = tensors[f"{name}:{key}"].to(parameter.device)
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
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
