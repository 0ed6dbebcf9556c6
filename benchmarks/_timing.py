"""What the benchmarks share: sizes, the training step of this package, rounds that alternate, and intervals.

Two programs that are timed one after the other are timed under two different loads of the machine. So rounds of a few
steps alternate, each round gives one ratio, and only ratios are averaged.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from prism_transformer.data.corpus import TokenStream
from prism_transformer.training.device import choose_device
from prism_transformer.training.loop import Session
from prism_transformer.training.recipe import DeviceSettings, ModelSettings, Recipe, TrainingSettings, load_recipe
from prism_transformer.training.state import RunFolder, environment

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


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


SIZES = {size.name: size for size in (demo_size(), Size("12M", 6, 384, 6, 256, 4096, 16))}


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="models to time")
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

    def step(folder=folder) -> None:  # the folder lives as long as the step
        session.train_step()

    return step


def seconds_of(step: Callable[[], object], *, clock: str) -> Callable[[int], float]:
    """A function that runs so many steps and says how many seconds they took."""
    now = CLOCKS[clock]

    def run(steps: int) -> float:
        start = now()
        for _ in range(steps):
            step()
        return now() - start

    return run


class Rounds(NamedTuple):
    """Seconds a step of two sides, round by round."""

    first: np.ndarray
    second: np.ndarray

    @property
    def log_speeds(self) -> np.ndarray:
        """Of the second side relative to the first, one for each round."""
        return np.log(self.first / self.second)


def alternate(first: Callable[[int], float], second: Callable[[int], float], *, rounds: int, steps: int) -> Rounds:
    """Rounds of `steps` steps of both sides, the order changing each round; one round of warm-up is dropped."""
    times = np.empty((rounds + 1, 2))
    for index in range(rounds + 1):
        for side in ((0, 1), (1, 0))[index % 2]:
            times[index, side] = (first, second)[side](steps) / steps
    return Rounds(times[1:, 0], times[1:, 1])


class Speed(NamedTuple):
    """A ratio of speeds with its 95 % interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_speed(log_speeds: Sequence[float] | np.ndarray) -> Speed:
    """The median of rounds; the interval is the bootstrap's, over rounds."""
    values = np.asarray(log_speeds)
    drawn = np.random.default_rng(0).choice(values, (10_000, values.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Speed(math.exp(np.median(values)), math.exp(low), math.exp(high))


def describe_machine(options: argparse.Namespace) -> str:
    found = environment()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    setting = f"{options.dtype}, {options.threads} thread(s) a side, {options.clock} seconds"
    return f"{found['processor']}; {versions}\n{setting}"


def show(name: str, value: object) -> None:
    print(f"  {name:<44} {value}", flush=True)
