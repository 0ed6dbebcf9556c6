"""Runs in tests: how they are made, looked at and compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from prism_transformer.data import Corpus
from prism_transformer.training.loop import train
from prism_transformer.training.metrics import read_metrics
from prism_transformer.training.recipe import (
    DeviceSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    TrainingSettings,
)

STEPS = 24
TIMES = ("seconds", "tokens_per_second", "save_seconds")
RECIPE = Recipe(
    model=ModelSettings(layers=2, d_model=16, heads=4, schedule="1x1,4x1", context=16),
    optimizer=OptimizerSettings(lr=0.01, warmup=0.1),
    training=TrainingSettings(
        tokens=24 * 64, tokens_per_step=64, micro_batch=2, evaluations=4, evaluation_tokens=32, log_every=5
    ),
    device=DeviceSettings(device="cpu", dtype="float32", threads=1),
)


def quiet(line: str) -> None:
    """Takes what a run says."""


def run(recipe: Recipe, out: Path, corpus: Corpus, **options: Any) -> dict[str, Any]:
    return train(recipe, out, corpus=corpus, **{"say": quiet} | options)


def whole_run(recipe: Recipe, corpus: Corpus, folder: Path) -> Path:
    """The folder of an unbroken run, in `folder`."""
    run(recipe, folder / "run", corpus)
    return folder / "run"


def records(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics without what a clock measured."""
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(out / "metrics.jsonl")]


def tensors(out: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    """Weights and optimizer state of a checkpoint."""
    folder = out / "checkpoints" / f"step-{step:06d}"
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit the same weights and optimizer state at the end, and the same lines of metrics."""
    assert records(one) == records(other)
    last = records(one)[-1]["step"]
    a, b = tensors(one, last), tensors(other, last)
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


def at_step(step: int, action: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """A callback that acts once, at the first record of `step` or later."""
    left = [action]

    def on_record(record: dict[str, Any]) -> None:
        if record["step"] >= step and left:
            left.pop()()

    return on_record
