"""The processes of one run: which one this is, and what they settle among themselves.

torchrun starts them; without it there is one. Gradients travel by the device's own backend. All else (a few bytes) goes
over gloo between the CPUs with a time-out of a day: there the others wait while rank 0 prepares text or writes a
checkpoint, so that no collective of the device is under way that could run into its time-out. It is sent as JSON.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from ..errors import DivergedError, InputError, RunError
from .rendezvous import fresh_store

T = TypeVar("T")
_WAIT, _START = timedelta(days=1), timedelta(minutes=30)
_ERRORS: dict[str, type[InputError | RunError]] = {
    "InputError": InputError,
    "RunError": RunError,
    "DivergedError": DivergedError,
}


@dataclass(frozen=True)
class World:
    """One process among `size`. Every method must be called by all of them, in the same order."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among the processes of this machine: the index of its device."""
    launched: bool = False
    """Whether torchrun started it."""
    _group: Any = None

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes and tells."""
        return self.rank == 0

    def together(self, work: Callable[[], T]) -> list[T]:
        """What `work` returns (JSON) on each rank; where it raises on one of them, every rank raises that error."""
        if self.size == 1:
            return [work()]
        own: Exception | None = None
        outcome: dict[str, Any] = {}
        try:
            outcome["value"] = work()
        except Exception as error:
            own, outcome["error"] = error, _as_json(error)
        outcomes = self._gather(outcome)
        if own is not None:
            raise own
        for rank, other in enumerate(outcomes):
            if "error" in other:
                raise _from_json(other["error"], rank)
        return [other["value"] for other in outcomes]

    def on_main(self, work: Callable[[], T]) -> T:
        """What `work` returns (JSON) on rank 0, where alone it is done; its error is every rank's."""
        return self.together(work if self.is_main else lambda: None)[0]  # type: ignore[return-value]

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        if self.size == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._group)
        return int(tensor)

    def sum(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sum over ranks of arrays of one shape."""
        if self.size > 1:
            dist.all_reduce(torch.from_numpy(values), group=self._group)  # in place, in the same memory
        return values

    def _gather(self, value: Any) -> list[Any]:
        """The JSON values of all ranks."""
        raw = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
        lengths = [torch.zeros((), dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor(len(raw)), group=self._group)
        own = torch.zeros(max(map(int, lengths)), dtype=torch.uint8)
        own[: len(raw)] = torch.from_numpy(raw.copy())
        parts = [torch.empty_like(own) for _ in lengths]
        dist.all_gather(parts, own, group=self._group)
        return [json.loads(part[: int(n)].numpy().tobytes()) for part, n in zip(parts, lengths, strict=True)]


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The world of this process while it lasts; a process group that exists already is used and left.

    `device` is the setting of that name. Raises InputError for a device that several processes cannot share out.
    """
    launched = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    if not dist.is_initialized() and not (launched and int(os.environ["WORLD_SIZE"]) > 1):
        yield World(launched=launched)
        return
    local_rank, begins = int(os.environ.get("LOCAL_RANK", 0)), not dist.is_initialized()
    uses_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if not uses_cuda and device not in ("auto", "cpu"):
        raise InputError(f"device={device} names one device, and there are several processes; choose auto, cpu or cuda")
    if uses_cuda and local_rank < torch.cuda.device_count():  # where it is not, choosing the device says so
        torch.cuda.set_device(local_rank)
    if begins:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = fresh_store(rank, size, time_out=_START)
        backend = "cpu:gloo,cuda:nccl" if uses_cuda else "gloo"
        if store is None:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        group = dist.new_group(backend="gloo", timeout=_WAIT)
        yield World(dist.get_rank(), dist.get_world_size(), local_rank, launched, group)
    finally:
        if begins:
            dist.destroy_process_group()


@contextmanager
def lost_ranks_are_run_errors(world: World) -> Iterator[None]:
    """A collective that fails because another process has ended is no fault of this one: raises RunError."""
    try:
        yield
    except RuntimeError as error:
        is_collective = isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "NCCL"))
        if world.size == 1 or isinstance(error, RunError) or not is_collective:
            raise
        raise RunError(
            f"rank {world.rank} lost another process of the run ({str(error).splitlines()[0]}); what that one said "
            "tells why. The same command goes on from the last checkpoint"
        ) from None


def _as_json(error: Exception) -> dict[str, Any]:
    sentences = list(error.problems) if isinstance(error, InputError) else [f"{error}" or type(error).__name__]
    kind = next((name for name in reversed(_ERRORS) if isinstance(error, _ERRORS[name])), "")
    return {"kind": kind, "sentences": sentences}


def _from_json(value: dict[str, Any], rank: int) -> Exception:
    sentences = [f"rank {rank}: {sentence}" if rank else sentence for sentence in value["sentences"]]
    if value["kind"] == "InputError":
        return InputError(sentences)
    return _ERRORS.get(value["kind"], RunError)("\n".join(sentences))
