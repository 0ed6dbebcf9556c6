"""Is a training step here as fast as nanoGPT's, at equal matrix FLOPs?

    python benchmarks/step_against_nanogpt.py --nanogpt CHECKOUT [--sizes demo 12M] [--dtype float32]

nanoGPT comes from a checkout of github.com/karpathy/nanoGPT and runs eagerly, as its own training script would run it
on a CPU. Its MLP has two matrices of width 4 d and GELU; SwiGLU has three of width 8 d / 3: as many FLOPs, which are
printed as counted from both models. Both have tied embeddings, the same vocabulary and uniform heads, and a step is a
batch, forward, loss, backward, clipping and AdamW. Each side has a process of its own, as its users would start it:
this package's keeps the memory that it frees, as `prism train` does. Processes are restarted: where their memory
happens to lie is part of the error.
"""

import argparse
import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from _timing import (
    SIZES,
    Rounds,
    Size,
    Speed,
    alternate,
    arguments,
    describe_machine,
    make_recipe,
    random_tokens,
    seconds_of,
    show,
    training_step,
)
from torch import nn

from prism_transformer.kernels.allocation import keep_freed_memory
from prism_transformer.study.statistics import paired_t

SIDES = ("nanoGPT", "prism-transformer")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of one pair of processes")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of fresh processes")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(options)
        return
    if not (options.nanogpt / "model.py").exists():
        parser.error(f"--nanogpt {options.nanogpt}: no model.py there; give a checkout of nanoGPT")
    print(describe_machine(options))
    for name in options.sizes:
        compare(SIZES[name], options)


def compare(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}; uniform heads")
    pairs: list[Rounds] = []
    for pair in range(options.pairs):
        with process(SIDES[0], size, options) as nanogpt, process(SIDES[1], size, options) as ours:
            if pair == 0:
                for side in (nanogpt, ours):
                    show(f"{side.name}, matmul FLOPs a token, forward", f"{side.flops:,}")
            pairs.append(alternate(nanogpt.run, ours.run, rounds=options.rounds, steps=options.steps))
    for name, seconds in zip(SIDES, zip(*pairs, strict=True), strict=True):
        show(f"{name}, median ms a step", f"{1e3 * np.median(np.concatenate(seconds)):.1f}")
    found = paired_t([float(np.median(rounds.log_speeds)) for rounds in pairs], 0.95)
    speed = Speed(*(math.exp(x) for x in (found.mean, found.low, found.high)))
    show("speed relative to nanoGPT", f"{speed}  (95 %, {len(pairs)} pairs of processes)")


class Remote:
    """One side in its own process; it waits without computing until it is asked for steps."""

    def __init__(self, name: str, child: subprocess.Popen[str]) -> None:
        self.name, self._child = name, child
        self.flops: int = self._answer()

    def run(self, steps: int) -> float:
        assert self._child.stdin
        self._child.stdin.write(f"{steps}\n")
        self._child.stdin.flush()
        return float(self._answer())

    def _answer(self) -> float:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended: see its message above")
        return json.loads(line)


@contextlib.contextmanager
def process(side: str, size: Size, options: argparse.Namespace) -> Iterator[Remote]:
    command = [sys.executable, __file__, "--side", side, "--sizes", size.name, "--nanogpt", str(options.nanogpt)]
    command += ["--dtype", options.dtype, "--threads", str(options.threads), "--clock", options.clock]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield Remote(side, child)
        assert child.stdin
        child.stdin.close()


def serve(options: argparse.Namespace) -> None:
    """The other end of `Remote`: FLOPs first, then the seconds of as many steps as each line of input asks for."""
    size = SIZES[options.sizes[0]]
    with contextlib.redirect_stdout(sys.stderr):  # nanoGPT prints while it is built
        torch.set_num_threads(options.threads)
        step, flops = (nanogpt_step if options.side == SIDES[0] else our_step)(size, options)
        run = seconds_of(step, clock=options.clock)
    print(json.dumps(flops), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(int(line))), flush=True)


def our_step(size: Size, options: argparse.Namespace) -> tuple[Callable[[], object], int]:
    keep_freed_memory()
    recipe = make_recipe(size, schedule="uniform", dtype=options.dtype, threads=options.threads)
    return training_step(recipe, size), recipe.model.cost(size.vocab_size).matmul_flops_per_token


def nanogpt_step(size: Size, options: argparse.Namespace) -> tuple[Callable[[], object], int]:
    sys.path.insert(0, str(options.nanogpt))
    import model as nanogpt

    settings = {"block_size": size.context, "vocab_size": size.vocab_size, "dropout": 0.0, "bias": False}
    network = nanogpt.GPT(
        nanogpt.GPTConfig(n_layer=size.layers, n_head=size.heads, n_embd=size.d_model, **settings)
    ).train()
    optimizer = network.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu")
    tokens = random_tokens(size)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16")
    window = np.arange(size.context + 1)

    def step() -> None:
        starts = torch.randint(len(tokens) - size.context, (size.batch, 1)).numpy()
        ids = torch.from_numpy(tokens[starts + window].astype(np.int64))
        with autocast:
            _, loss = network(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    matrices = sum(2 * m.in_features * m.out_features for m in network.modules() if isinstance(m, nn.Linear))
    return step, matrices + size.layers * 4 * size.context * size.d_model


if __name__ == "__main__":
    main()
