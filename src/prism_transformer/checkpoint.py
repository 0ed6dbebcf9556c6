"""Save and load a model together with its identity.

The weights of any schedule fit any other without a word, so every saved model carries its schedule's fingerprint and
its golden logits: what it answered, in fp32 on the CPU, to 16 fixed tokens. Loading computes them again. Each file's
sha256 stands beside them, since a flipped bit may be too small to be seen in a logit.
"""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from .errors import DivergedError, InputError
from .files import checksums, read_json, verify, write_json
from .model.configuration_prism import PrismConfig
from .model.modeling_prism import PrismForCausalLM

IDENTITY = "identity.json"
GOLDEN = "golden.safetensors"
CHECKPOINTS, LATEST = "checkpoints", "latest"
"""In a run folder: where its checkpoints are, and the file among them that names the newest complete one."""
GOLDEN_TOKENS = 16
GOLDEN_TOLERANCE = 1e-3
"""Largest difference of a logit that machines and kernels may cause."""


class GoldenError(InputError):
    """The files are those that were saved, but the model answers otherwise than it did."""


def step_name(step: int) -> str:
    """The name of the checkpoint of a step, and of what is found out about it."""
    return f"step-{step:06d}"


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


def latest_checkpoint(run: Path) -> Path | None:
    """The newest complete checkpoint of a run folder."""
    pointer = run / CHECKPOINTS / LATEST
    return pointer.parent / pointer.read_text(encoding="utf-8").strip() if pointer.exists() else None


def golden_ids(config: PrismConfig) -> Tensor:
    """[1, 16] fixed tokens, spread over the vocabulary."""
    size = config.true_vocab_size or config.vocab_size
    return torch.tensor([[(7919 * i + 13) % size for i in range(GOLDEN_TOKENS)]])


def as_written(model: nn.Module) -> AbstractContextManager[object]:
    """Inside, compiled layers run as they are written: an evaluation's shapes would each be compiled anew."""
    if any(module._compiled_call_impl is not None for module in model.modules()):
        stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
        return stance
    return nullcontext()


@torch.no_grad()
def golden_logits(model: PrismForCausalLM) -> Tensor:
    """[16, V] what `model` answers to the golden tokens in fp32 on the CPU; `model` is left as it is."""
    reference = model
    if model.device.type != "cpu" or model.dtype != torch.float32:
        reference = copy.deepcopy(model)
        nn.Module.to(reference, "cpu", torch.float32)
    was_training = reference.training
    reference.train(False)
    size = model.config.true_vocab_size or model.config.vocab_size
    with as_written(reference):
        logits: Tensor = reference(golden_ids(model.config), use_cache=False).logits[0, :, :size].clone()
    reference.train(was_training)
    return logits


def save_model(model: PrismForCausalLM, folder: Path, *, origin: dict[str, Any]) -> None:
    """Write weights, configuration, code, identity and golden logits into the new `folder`.

    `origin` joins the identity: whatever says where the model comes from (data fingerprint, step, …). Raises
    DivergedError for a model whose answers are not finite: it must not take the place of one that can be used.
    """
    logits = golden_logits(model)
    if not bool(logits.isfinite().all()):
        raise DivergedError("the model answers with numbers that are not finite: it has diverged and is not saved")
    with quiet_transformers():
        model.save_pretrained(folder)
    save_file({"logits": logits, "ids": golden_ids(model.config)}, folder / GOLDEN)
    schedule = model.config.head_schedule
    identity = {"head_schedule": str(schedule), "d_model": schedule.d_model, "fingerprint": schedule.fingerprint}
    write_json(folder / IDENTITY, identity | origin | {"sha256": checksums(sorted(folder.iterdir()))})


def load_model(folder: Path, *, accept_golden: bool = False) -> PrismForCausalLM:
    """Load a saved model in fp32 and prove that it is the one that was saved.

    Raises InputError where the schedule of the configuration is not the one in the identity or where a file is missing
    or is not as it was saved, and GoldenError where the golden logits differ, unless `accept_golden`.
    """
    identity = read_json(folder / IDENTITY)
    schedule = _read_config(folder).head_schedule
    if schedule.fingerprint != identity.get("fingerprint"):
        raise InputError(
            f"{folder}: config.json has the head schedule {schedule}, but the weights were trained with "
            f"{identity.get('head_schedule')}; weights fit any schedule without a word, so restore config.json"
        )
    if "sha256" not in identity:
        raise InputError(f"{folder / IDENTITY} has no sha256 of the other files; restore it")
    verify(folder, identity["sha256"])
    with quiet_transformers():
        model = PrismForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for parameter in model.parameters():  # out of the file's bytes: their alignment changes the last digit of a product
        parameter.data = parameter.data.clone()
    distance = float((golden_logits(model) - load_file(folder / GOLDEN)["logits"]).abs().max())
    if not distance <= GOLDEN_TOLERANCE and not accept_golden:
        raise GoldenError(
            f"{folder}: the model does not answer as it did when it was saved: golden logits differ by {distance:.3g} "
            f"(tolerance {GOLDEN_TOLERANCE}), though its files are as they were; this version of prism-transformer, "
            "torch or transformers computes something else"
        )
    return model


def _read_config(folder: Path) -> PrismConfig:
    try:
        return PrismConfig.from_pretrained(folder)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder}: config.json cannot be used: {error}") from None


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars out of the output, and leave them as they were afterwards."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()
