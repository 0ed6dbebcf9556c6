"""A model over the processes of a run: whole on each (DDP), or a share on each (FSDP2).

Either way the gradient of a step is the one that a single process computes: each rank divides the losses of its
sequences by its own share of the step's tokens, gradients are averaged over ranks, and that happens once a step. Names
and numbers do not depend on the way: what is saved is the whole model, gathered to rank 0.

Rank 0 starts with the whole model on its CPU, new or loaded; the others start with one on the meta device, which takes
no memory, and receive their tensors from rank 0. So any number of processes starts from the same tensors as one.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from ..model.configuration_prism import PrismConfig
from ..model.modeling_prism import PrismForCausalLM, PrismRotaryEmbedding
from .device import Device
from .fit import Way
from .optimizer import OPTIMIZER_KEYS
from .world import World


class ParallelModel:
    """`model` has the plain names and this rank's parameters; `forward` is what to call in training."""

    def __init__(self, whole: PrismForCausalLM | None, way: Way, device: Device, world: World) -> None:
        """`whole` is the model on rank 0, and None elsewhere."""
        self.way, self._device, self._world = way, device, world
        if way == "one":
            assert whole is not None
            self.model = whole
            nn.Module.to(self.model, device.device)
        elif way == "ddp":
            self.model = self._replicated(whole)
        else:
            self.model = self._sharded(whole)
        self.forward: nn.Module = self.model
        if way == "ddp":
            index = None if device.device.index is None else [device.device.index]
            buffers = [name for name, _ in self.model.named_buffers()]  # constants: nothing to keep in step
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, buffers)
            self.forward = DistributedDataParallel(self.model, device_ids=index, gradient_as_bucket_view=True)

    def _config(self, whole: PrismForCausalLM | None) -> PrismConfig:
        values = self._world.on_main(lambda: whole.config.to_dict() if whole else {})
        return whole.config if whole else PrismConfig.from_dict(values)

    def _replicated(self, whole: PrismForCausalLM | None) -> PrismForCausalLM:
        """The model with memory of its own; DDP fills it with rank 0's values."""
        config = self._config(whole)
        model = whole or on_meta(config)
        if whole is None:
            nn.Module.to_empty(model, device=self._device.device)
            model.tie_weights()
            fill_buffers(model)
        nn.Module.to(model, self._device.device)
        return model

    def _sharded(self, whole: PrismForCausalLM | None) -> PrismForCausalLM:
        """A group of shards for each layer's matrices, one for the rest: embedding, norms, head.

        Embedding and head in one group keep their tie. Norms are there since they stay in fp32, and the matrices are
        gathered in the type of the products: with the products under autocast, the numbers are those of DDP.
        """
        model = on_meta(self._config(whole))
        mesh = init_device_mesh(self._device.device.type, (self._world.size,))
        low = None if self._device.dtype == torch.float32 else self._device.dtype
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for layer in model.model.layers:
            fully_shard([layer.self_attn, layer.mlp], mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
        nn.Module.to_empty(model, device=self._device.device)
        fill_buffers(model)
        values = dict(whole.named_parameters()) if whole else {}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.spread(values.get(name), parameter))
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        assert tied == model.config.tie_word_embeddings, "sharding has changed the tie of embedding and head"
        return model

    @property
    def sentence(self) -> str:
        """How the model lies on several processes, in words."""
        words = {"one": "", "ddp": "the whole model on each (DDP)", "fsdp": "a share of the model on each (FSDP2)"}
        return f"{self._world.size} processes, {words[self.way]}" if self.way != "one" else ""

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """By their plain names, sharded where they are: an evaluation leaves the last group gathered."""
        if isinstance(self.model, FSDPModule):
            self.model.reshard()
        return list(self.model.named_parameters())

    def micro_step(self, *, last: bool) -> AbstractContextManager[object]:
        """Around a micro-batch of a step: gradients are averaged over ranks after the last one only."""
        if self.way == "fsdp":
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
        return self.forward.no_sync() if self.way == "ddp" and not last else nullcontext()  # type: ignore[operator]

    def clip(self, largest: float) -> Tensor:
        """Scale the gradients so that their norm over all ranks is at most `largest`; returns the norm before."""
        norm: Tensor = torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def total(self, values: Tensor) -> Tensor:
        """The sum of `values` over ranks."""
        if self.way != "one":
            dist.all_reduce(values)
        return values

    def spread(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """Rank 0's `whole`, as this rank holds a parameter `like`: all of it, or its share."""
        if self.way == "one":
            assert whole is not None
            return whole.to(like.device, copy=True)  # aligned, as torch allocates
        device = self._device.device
        own = torch.empty(like.shape, device=device) if whole is None else whole.to(device, copy=True)
        if isinstance(like, DTensor):
            return distribute_tensor(own, like.device_mesh, like.placements)
        dist.broadcast(own, 0)
        return own

    def whole_model(self) -> PrismForCausalLM | None:
        """The whole model on rank 0, None elsewhere."""
        if self.way != "fsdp":
            return self.model if self._world.is_main else None
        values = {name: self.gathered(parameter) for name, parameter in self.named_parameters()}
        if not self._world.is_main:
            return None
        model = on_meta(self.model.config)
        model.load_state_dict(values, assign=True, strict=False)  # a tied head has no tensor of its own
        model.tie_weights()
        fill_buffers(model)
        return model

    def gathered(self, tensor: Tensor) -> Tensor | None:
        """All of a tensor on the CPU of rank 0, None elsewhere."""
        full = tensor.detach()
        full = full.full_tensor() if isinstance(full, DTensor) else full
        return full.cpu().contiguous() if self._world.is_main else None


def on_meta(config: PrismConfig) -> PrismForCausalLM:
    with torch.device("meta"):
        return PrismForCausalLM(config)


def fill_buffers(model: PrismForCausalLM) -> None:
    """Compute what no checkpoint holds: the frequencies of RoPE."""
    device = next(model.parameters()).device
    for module in model.modules():
        if isinstance(module, PrismRotaryEmbedding):
            module.inv_freq = module.frequencies().to(device)


def optimizer_tensors(parallel: ParallelModel, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state by the names of the parameters ("model.norm.weight:exp_avg"), whole on rank 0."""
    return {
        f"{name}:{key}": parallel.gathered(value)
        for name, parameter in parallel.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(parallel: ParallelModel, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Fill a fresh optimizer with saved state, which rank 0 has."""
    for name, parameter in parallel.named_parameters():
        likes = {"step": torch.zeros((), device=parameter.device)}
        optimizer.state[parameter] = {
            key: parallel.spread(tensors.get(f"{name}:{key}"), likes.get(key, parameter)) for key in OPTIMIZER_KEYS
        }
