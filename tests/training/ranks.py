"""Groups of processes, as torchrun starts them, and what each of them does in the tests.

They are forked from a server that has imported everything once. The functions are here, since the server imports them.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from prism_transformer.data import Corpus
from prism_transformer.errors import InputError, RunError, Stopped
from prism_transformer.training.loop import train
from prism_transformer.training.recipe import Recipe

ROOT = str(Path(__file__).parents[2])


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(rank, *arguments)` returns in each process of a group; None for a process that was killed."""
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)  # handed on to the server, which imports this module by its name
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    port, processes, ends = free_port(), [], []
    for rank in range(size):
        end, other = context.Pipe(duplex=False)
        processes.append(context.Process(target=_enter, args=(rank, size, port, other, work, arguments)))
        ends.append(end)
        processes[-1].start()
        other.close()
    found = [_received(end) for end in ends]
    for process in processes:
        process.join(600)
    for outcome in found:
        if isinstance(outcome, BaseException):
            raise outcome
    return found


def _received(end: Any) -> Any:
    try:
        return end.recv()
    except EOFError:
        return None


def _enter(rank: int, size: int, port: int, end: Any, work: Callable[..., Any], arguments: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        end.send(work(rank, *arguments))
    except BaseException as error:  # the test raises it
        end.send(error)


def outcome_of(recipe: Recipe, out: Path, corpus: Path, **options: Any) -> dict[str, Any]:
    """How a run ends on this rank, and what it said."""
    said: list[str] = []
    seen: list[dict[str, Any]] = []
    on_record = options.pop("on_record", lambda record: None)

    def note(record: dict[str, Any]) -> None:
        seen.append(record)
        on_record(record)

    began = time.monotonic()
    try:
        train(recipe, out, corpus=Corpus.open(corpus), say=said.append, on_record=note, **options)
        end = ["finished", ""]
    except (InputError, RunError, Stopped) as error:
        end = [type(error).__name__, str(error)]
    return {"end": end, "said": said, "records": len(seen), "seconds": time.monotonic() - began}


def trained(rank: int, runs: Sequence[tuple[Recipe, Path, Path]]) -> list[dict[str, Any]]:
    """One run after another, in one process group."""
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=300))
    found = [outcome_of(*run) for run in runs]
    torch.distributed.destroy_process_group()
    return found


def stopped(rank: int, recipe: Recipe, out: Path, corpus: Path, who: int, micro: int) -> dict[str, Any]:
    """A run whose rank `who` alone gets SIGTERM before its `micro`-th backward pass."""
    backward, passes = torch.Tensor.backward, 0

    def signalled(tensor: torch.Tensor, *arguments: Any, **options: Any) -> None:
        nonlocal passes
        passes += 1
        if rank == who and passes == micro:
            os.kill(os.getpid(), signal.SIGTERM)
        backward(tensor, *arguments, **options)

    torch.Tensor.backward = signalled  # type: ignore[method-assign]
    return outcome_of(recipe, out, corpus) | {"passes": passes}


def lost(rank: int, recipe: Recipe, out: Path, corpus: Path) -> dict[str, Any]:
    """A run whose rank 1 is killed in its sixth step."""
    backward, passes = torch.Tensor.backward, 0

    def killed(tensor: torch.Tensor, *arguments: Any, **options: Any) -> None:
        nonlocal passes
        passes += 1
        if rank == 1 and passes == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(tensor, *arguments, **options)

    torch.Tensor.backward = killed  # type: ignore[method-assign]
    return outcome_of(recipe, out, corpus)


def slow_saves(rank: int, recipe: Recipe, out: Path, corpus: Path) -> dict[str, Any]:
    """Rank 0 writes for longer than the time-out of the gradients' collectives."""
    from prism_transformer.training.state import RunFolder

    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=3))
    write = RunFolder._write

    def slow(*arguments: Any) -> Path:
        time.sleep(6)
        return write(*arguments)

    RunFolder._write = slow  # type: ignore[method-assign]
    return outcome_of(recipe, out, corpus)


def apart(rank: int, recipe: Recipe, out: Path, texts: Sequence[Path]) -> dict[str, Any]:
    """Each rank reads a text of its own."""
    return outcome_of(recipe, out, texts[rank])


def inside(rank: int, recipe: Recipe, corpus: Path, out: Path) -> dict[str, Any]:
    """What only the processes themselves can see of a sharded model, and of a measurement that they share."""
    from prism_transformer.evaluation.loss import token_losses
    from prism_transformer.training.build import new_model
    from prism_transformer.training.device import choose_device
    from prism_transformer.training.session import Session
    from prism_transformer.training.state import RunFolder
    from prism_transformer.training.world import joined

    text = Corpus.open(corpus)
    found: dict[str, Any] = {}
    with joined("cpu") as world:
        out.mkdir(exist_ok=True)
        sharded = replace(recipe, device=replace(recipe.device, parallel="fsdp"))
        session = Session(
            sharded, RunFolder(out), text, choose_device(recipe.device), lambda _: None, lambda _: None, world=world
        )
        model, one = session.model, new_model(recipe, text)
        gathered = {name: session.parallel.gathered(value) for name, value in session.parallel.named_parameters()}
        found["names"] = list(gathered) == [name for name, _ in one.named_parameters()]
        found["same start"] = rank > 0 or all(
            torch.equal(gathered[name], value) for name, value in one.named_parameters()
        )
        found["share"] = sum(value.to_local().numel() for value in model.parameters()) / sum(
            value.numel() for value in one.parameters()
        )
        for _ in range(5):
            session.train_step()
        found["tied"] = model.lm_head.weight is model.model.embed_tokens.weight
        stream = text.split("validation")
        calls = []
        shared = token_losses(
            one, stream, context=4, batch_size=2, max_tokens=28, ranks=world, before_batch=lambda: calls.append(1)
        )
        alone = token_losses(one, stream, context=4, batch_size=2, max_tokens=28)
        found["batches"], found["calls"] = len(shared) // 8 + bool(len(shared) % 8), len(calls)
        found["same losses"] = bool((shared == alone).all())
        found["batch sizes"] = [len(shared), len(session.batch(session.step))]
    return found
