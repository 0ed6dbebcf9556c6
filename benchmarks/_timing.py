"""What the benchmarks share: sizes, the training step of this package, and sides in processes of their own.

Two programs that are timed one after the other are timed under two different loads of the machine. So rounds of a few
steps alternate, each round gives one ratio, and only ratios are averaged (`prism_transformer.benchmark.timing`).
"""

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from prism_transformer.benchmark.memory import resident_peak
from prism_transformer.benchmark.peak import cpu_peak
from prism_transformer.benchmark.timing import CLOCKS, Ratio, speed_ratio, turn_of
from prism_transformer.data.corpus import TokenStream
from prism_transformer.study.statistics import paired_t
from prism_transformer.training.build import compile_layers
from prism_transformer.training.device import choose_device
from prism_transformer.training.loop import Session
from prism_transformer.training.recipe import DeviceSettings, ModelSettings, Recipe, TrainingSettings
from prism_transformer.training.recipe_files import load_recipe
from prism_transformer.training.state import RunFolder, environment


@dataclass(frozen=True)
class Size:
    """A model and its batch."""

    name: str
    layers: int
    d_model: int
    heads: int
    context: int
    vocab_size: int
    batch: int
    """Sequences of a step."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.layers} layers, d_model {self.d_model}, {self.heads} base heads, "
            f"context {self.context}, vocabulary {self.vocab_size}, {self.batch} sequences a step"
        )


def demo_size() -> Size:
    recipe = load_recipe("demo").recipe
    model = recipe.model
    sizes = (model.layers, model.d_model, model.heads, model.context, recipe.data.vocab_size)
    return Size("demo", *sizes, batch=recipe.batch_sequences)


SIZES = {
    size.name: size
    for size in (
        demo_size(),
        Size("tiny", 2, 32, 4, 16, 128, 2),
        Size("12M", 6, 384, 6, 256, 4096, 16),
        Size("12M-50k", 6, 384, 6, 256, 50_304, 16),
        Size("124M", 12, 768, 12, 1024, 50_304, 1),
        Size("124M-batch8", 12, 768, 12, 1024, 50_304, 8),
    )
}
USUAL = ["demo", "12M"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=USUAL, help="models to time")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="type of matrix products")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a side")
    parser.add_argument("--steps", type=int, default=3, help="steps of a side in one round")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="wall seconds, or CPU seconds, which other programs on the machine disturb less",
    )
    return parser


def make_recipe(size: Size, *, schedule: str, dtype: str, threads: int) -> Recipe:
    tokens_per_step = size.batch * size.context
    return Recipe(
        model=ModelSettings(
            layers=size.layers, d_model=size.d_model, heads=size.heads, context=size.context, schedule=schedule
        ),
        training=TrainingSettings(
            tokens=10_000 * tokens_per_step, tokens_per_step=tokens_per_step, micro_batch=size.batch
        ),
        device=DeviceSettings(device="cpu", dtype=dtype, threads=threads),  # type: ignore[arg-type]
    )


def random_tokens(size: Size) -> np.ndarray:
    """Enough random ids for 100 steps without a repetition."""
    count = 100 * size.batch * size.context + 1
    return np.random.default_rng(0).integers(0, size.vocab_size, count, dtype=np.uint16)


def training_step(recipe: Recipe, size: Size) -> Callable[[], None]:
    """One step of the real training loop: batch, forward, loss, backward, clipping, AdamW."""
    tokenizer = SimpleNamespace(vocab_size=size.vocab_size, end_of_text=0)
    stream = TokenStream(where="random", parts=[random_tokens(size)], names=["random"], tokenizer=tokenizer)
    corpus = SimpleNamespace(
        split=lambda name: stream,
        vocab_size=size.vocab_size,
        tokenizer=tokenizer,
        fingerprint="random",
        tokenizer_name="random",
        shard_hashes={},
    )
    folder = tempfile.TemporaryDirectory()
    session = Session(
        recipe, RunFolder(Path(folder.name)), corpus, choose_device(recipe.device), lambda record: None, print
    )
    session.model.train()
    if recipe.device.compile:
        compile_layers(session.model, sharded=False)

    def step(folder=folder) -> None:  # the folder lives as long as the step
        session.train_step()

    return step


class Remote:
    """One side in its own process; it waits without computing until it is asked."""

    def __init__(self, name: str, child: subprocess.Popen[str]) -> None:
        self.name, self._child = name, child
        self.told: dict[str, float] = self._answer()
        """What the side says of itself when it is ready, such as its FLOPs."""

    def run(self, repeats: int) -> float:
        """Seconds of so many repetitions: a `Turn`."""
        return self.ask(str(repeats))

    def memory(self) -> int:
        """Bytes: the largest resident set of the process so far."""
        return self.ask("memory")

    def ask(self, word: str) -> Any:
        assert self._child.stdin
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended: see its message above")
        return json.loads(line)


@contextlib.contextmanager
def process(name: str, command: Sequence[str]) -> Iterator[Remote]:
    """A side that `serve` answers for."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield Remote(name, child)
        assert child.stdin
        child.stdin.close()


def serve(prepare: Callable[[], tuple[Callable[[], object], dict[str, float]]], *, clock: str) -> None:
    """The other end of `Remote`: what the side says of itself first, then an answer to each line of input."""
    with contextlib.redirect_stdout(sys.stderr):  # other packages print while they are built
        step, told = prepare()
        turn = turn_of(step, clock=clock)
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        answer = resident_peak() if line.strip() == "memory" else turn(int(line))
        print(json.dumps(answer), flush=True)


def ratio_of_pairs(pairs: Sequence[np.ndarray]) -> Ratio:
    """Speed of the second side relative to the first, from [2, rounds] seconds of each pair of fresh processes.

    Where the memory of a process happens to lie is part of the error, so the interval is Student's over the pairs.
    """
    if len(pairs) < 2:
        return speed_ratio(*pairs[0])
    logs = [float(np.median(np.log(first / second))) for first, second in pairs]
    found = paired_t(logs, 0.95)
    return Ratio(*(math.exp(x) for x in (found.mean, found.low, found.high)))


def describe_machine() -> str:
    found = environment()
    return f"{found['processor']}; {', '.join(f'{name} {version}' for name, version in found['versions'].items())}"


def describe_setting(options: argparse.Namespace) -> str:
    return f"{options.dtype}, {options.threads} thread(s) a side, {options.clock} seconds"


def peak_of(options: argparse.Namespace) -> float:
    """FLOP/s of a large matrix product, measured now with the same threads and type."""
    torch.set_num_threads(options.threads)
    return cpu_peak(getattr(torch, options.dtype))


def share(flops_per_step: float, seconds: float, peak: float) -> str:
    return f"{100 * flops_per_step / seconds / peak:.1f} % of {peak / 1e9:.0f} GFLOP/s"


def show(name: str, value: object) -> None:
    print(f"  {name:<44} {value}", flush=True)
