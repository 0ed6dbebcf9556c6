"""What a run starts with: its text and its model, the same on every rank."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._triton import has_triton
from torch.utils.checkpoint import checkpoint

from ..data import Corpus, prepare
from ..errors import InputError
from ..kernels.choose import use_fast_paths
from ..model.modeling_prism import PrismForCausalLM
from .beginning import weights_of_another_run
from .device import Device
from .origin import Origin
from .recipe import DeviceSettings, Recipe
from .saving import check_space
from .state import Position, RunFolder
from .world import World


@dataclass(frozen=True)
class Start:
    """Where a run starts, as rank 0 has read or made it; elsewhere nothing."""

    model: PrismForCausalLM | None = None
    optimizer: dict[str, torch.Tensor] = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    changes: list[str] = field(default_factory=list)
    """Accepted differences of recipe and text since the checkpoint."""

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters()) if self.model else 0


def read_start(
    checkpoint: Path | None,
    run: RunFolder,
    origin: Origin,
    corpus: Corpus,
    *,
    allow: Collection[str],
    say: Callable[[str], None],
) -> Start:
    """A new model, or the state of `checkpoint`. Raises InputError for a checkpoint that is damaged or of another run,
    and RunError where the disk has no room for one more."""
    recipe = origin.recipe
    start = Start(new_model(recipe, corpus)) if checkpoint is None else Start(*run.load(checkpoint, origin, allow))
    if start.position.step > recipe.steps:
        raise InputError(f"{checkpoint} is beyond the {recipe.steps:,} steps of this recipe; give more tokens")
    if checkpoint is not None:
        say(f"going on from {checkpoint}")
    elif recipe.model.from_run is not None:
        say(f"beginning with the weights of {recipe.model.from_run}")
    for change in start.changes:
        say(f"changed since, as asked: {change}")
    if start.position.step < recipe.steps and (warning := check_space(run.checkpoints, recipe, corpus.vocab_size)):
        say(warning)
    run.accept(origin, allow=allow)
    return replace(start, model=under_schedule(start.model, recipe, corpus))


def shared_corpus(recipe: Recipe, folder: Path, world: World, say: Callable[[str], None]) -> Corpus:
    """The text of the recipe: prepared by rank 0 in `folder`, unless it is already, and opened by all."""
    found: list[Corpus] = []

    def prepare_it() -> str:
        found.append(prepare(recipe.data, folder, say=say))
        return str(found[0].folder.resolve())

    path = Path(world.on_main(prepare_it))
    asked = recipe.data.named_tokenizer
    world.together(lambda: None if found else found.append(Corpus.open(path, tokenizer=asked)))
    return found[0]


def new_model(recipe: Recipe, corpus: Corpus) -> PrismForCausalLM:
    """The model before its first step: the same tensors for every schedule of one seed."""
    if recipe.model.from_run is not None:
        return weights_of_another_run(recipe, corpus)
    training = recipe.training
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers go on as if nothing had been drawn
        torch.manual_seed(training.seed if training.init_seed is None else training.init_seed)
        return PrismForCausalLM(recipe.model.config(corpus.vocab_size, corpus.tokenizer.end_of_text))


def under_schedule(model: PrismForCausalLM | None, recipe: Recipe, corpus: Corpus) -> PrismForCausalLM:
    """The weights of a loaded model under the recipe's schedule, where the user accepted another one than its own."""
    assert model is not None
    if model.config.head_schedule.fingerprint == recipe.model.head_schedule().fingerprint:
        return model
    other = new_model(recipe, corpus)
    other.load_state_dict(model.state_dict())
    return other


def make_ready(model: PrismForCausalLM, settings: DeviceSettings, device: Device) -> None:
    """Give a model on its device what it trains with there: the fast paths, and layers that are computed twice."""
    use_fast_paths(model, device.device, device.dtype)
    if settings.recompute:
        for layer in model.model.layers:  # as transformers does, which names its method otherwise in each version
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


def compiles(settings: DeviceSettings, device: Device) -> bool:
    """Whether layers are compiled: where it is asked for and torch.compile has a back end for the device."""
    if device.device.type == "cuda":
        return settings.compile and has_triton()
    compilers = [name for name in (os.environ.get("CXX"), "c++", "g++", "clang++", "cl") if name]
    return settings.compile and device.device.type == "cpu" and any(map(shutil.which, compilers))


def compile_layers(model: PrismForCausalLM, *, sharded: bool) -> None:
    """Compile in place, so that keys keep their names; one graph for each distinct head count.

    Of a sharded model attention and MLP are compiled apart: gathering their shards lies between them.
    """
    distinct = len(set(model.config.head_schedule.heads))
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 4 * distinct)
    for layer in model.model.layers:
        for module in (layer.self_attn, layer.mlp) if sharded else (layer,):
            module.compile()


def check_ranks_agree(world: World, facts: Mapping[str, Any]) -> None:
    """Raise InputError where a rank has other `facts` (name: JSON) than rank 0: say, reads another copy of the text."""
    of_all = world.together(lambda: facts)
    problems = [
        f"rank {rank} has another {name}: {other[name]}, and rank 0 has {of_all[0][name]}; every machine must read the "
        "same files and get the same settings"
        for rank, other in enumerate(of_all)
        for name in facts
        if other[name] != of_all[0][name]
    ]
    if problems:
        raise InputError(problems)
