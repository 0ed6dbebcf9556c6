"""What really ran: the attention kernel of each layer, and the graphs that torch.compile made."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..kernels.block_causal import NAME as BLOCK_CAUSAL
from ..model.modeling_prism import PrismForCausalLM

FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
    "_scaled_dot_product_fused_attention_overrideable": "fused by the device",
}
"""The operators of torch's fused attention kernels, forward."""
PLAIN = "plain, not fused"


class FusedKernels(TorchDispatchMode):
    """Notes the fused attention operators that run inside, by layer."""

    def __init__(self, layer: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layer = layer
        self.found: dict[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = FUSED.get(func.overloadpacket.__name__)
        if name and self.layer is not None:
            self.found[self.layer] = name
        return func(*args, **(kwargs or {}))


def attention_kernels(model: PrismForCausalLM, run: Callable[[], object]) -> list[str]:
    """The attention kernel that each layer of `model` uses while `run` runs; the model must not be compiled yet."""
    log = FusedKernels()

    def enter(layer: int) -> Callable[..., None]:
        return lambda *_: setattr(log, "layer", layer)

    def leave(*_: Any) -> None:
        log.layer = None

    modules = [layer.self_attn for layer in model.model.layers]
    hooks = [module.register_forward_pre_hook(enter(number)) for number, module in enumerate(modules)]
    hooks += [module.register_forward_hook(leave) for module in modules]
    try:
        with log:
            run()
    finally:
        for hook in hooks:
            hook.remove()
    without = "block-causal" if model.config._attn_implementation == BLOCK_CAUSAL else PLAIN
    return [log.found.get(number, without) for number in range(len(modules))]


@dataclass
class Compilation:
    """What torch.compile did."""

    graphs: int = 0
    breaks: int = 0
    """Places at which a layer was cut into several graphs."""
    fallbacks: int = 0
    """Pieces of code that were left uncompiled, as those beyond the recompile limit are."""


@contextmanager
def compilation_counted() -> Iterator[Compilation]:
    """Counts what is compiled inside; what was compiled before must be compiled again."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    found = Compilation()
    yield found
    frames = counters["frames"]
    found.graphs = counters["stats"]["unique_graphs"]
    found.breaks = sum(counters["graph_break"].values())
    found.fallbacks = frames["total"] - frames["ok"]


class Inspected(NamedTuple):
    """How one arm ran."""

    kernels: Mapping[str, list[str]]
    """By workload, of each layer."""
    heads: Sequence[int]
    compiled: Compilation | None


def differences(arms: Mapping[str, Inspected]) -> dict[str, list[str]]:
    """Why an arm cannot be compared fairly with the first one, by arm."""
    baseline, *others = arms
    found = {name: _reasons(baseline, arms[baseline], name, arms[name]) for name in others}
    return {name: reasons for name, reasons in found.items() if reasons}


def _reasons(baseline: str, first: Inspected, name: str, second: Inspected) -> list[str]:
    reasons = []
    for work, kernels in first.kernels.items():
        if set(second.kernels[work]) != set(kernels):
            told = f"{baseline}: {_listed(kernels)}; {name}: {_listed(second.kernels[work])}"
            reasons.append(f"{work} runs in other attention kernels ({told})")
    if first.compiled and second.compiled:
        a, b = first.compiled, second.compiled
        counts = {"graph breaks": (a.breaks, b.breaks), "fall-backs to uncompiled code": (a.fallbacks, b.fallbacks)}
        reasons += [f"{what}: {x} of {baseline}, {y} of {name}" for what, (x, y) in counts.items() if x != y]
        # Each distinct head count needs its own graph; any other number is another way of running.
        expected = a.graphs * len(set(second.heads)) / len(set(first.heads))
        if b.graphs != expected:
            reasons.append(f"{b.graphs} compiled graphs of {name}, where its distinct head counts ask for {expected:g}")
    return reasons


def _listed(kernels: list[str]) -> str:
    """flash in layers 1-2, plain in layer 3."""
    groups: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels, start=1):
        groups.setdefault(kernel, []).append(number)
    if len(groups) == 1:
        return f"{kernels[0]} in every layer"
    return ", ".join(f"{kernel} in layers {','.join(map(str, numbers))}" for kernel, numbers in groups.items())
