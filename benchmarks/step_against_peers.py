"""Is a training step here as fast as nanoGPT's, at equal matrix FLOPs, and how much memory does it take?

    python benchmarks/step_against_nanogpt.py --nanogpt CHECKOUT [--sizes demo 12M] [--dtype float32]

nanoGPT comes from a checkout of github.com/karpathy/nanoGPT and runs eagerly, as its own training script would run it
on a CPU. Its MLP has two matrices of width 4 d and GELU; SwiGLU has three of width 8 d / 3: as many FLOPs, which are
printed as counted from both models. Both have tied embeddings, the same vocabulary and uniform heads, and a step is a
batch, forward, loss, backward, clipping and AdamW. Each side has a process of its own, as its users would start it:
this package's keeps the memory that it frees, as `prism train` does. Processes are restarted: where their memory
happens to lie is part of the error.

--same-allocator gives nanoGPT the kept memory too; --compile compares with its compiled mode, and compiles the layers
here as well.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from _timing import (
    SIZES,
    Size,
    arguments,
    describe_machine,
    make_recipe,
    process,
    random_tokens,
    ratio_of_pairs,
    serve,
    share_of_peak,
    show,
    training_step,
)
from torch import nn

from prism_transformer.benchmark.timing import interleave
from prism_transformer.kernels.allocation import keep_freed_memory

SIDES = ("nanoGPT", "prism-transformer")
Prepared = tuple[Callable[[], object], dict[str, float]]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of one pair of processes")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of fresh processes")
    parser.add_argument("--same-allocator", action="store_true", help="nanoGPT keeps its freed memory too")
    parser.add_argument("--compile", action="store_true", help="both compiled")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        size = SIZES[options.sizes[0]]
        serve(functools.partial(prepare, size, options), clock=options.clock)
        return
    if not (options.nanogpt / "model.py").exists():
        parser.error(f"--nanogpt {options.nanogpt}: no model.py there; give a checkout of nanoGPT")
    print(describe_machine(options))
    allocator = "nanoGPT too keeps its freed memory" if options.same_allocator else "nanoGPT with the usual allocator"
    print(f"{allocator}; {'both compiled' if options.compile else 'both eager'}")
    for name in options.sizes:
        compare(SIZES[name], options)


def compare(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}; uniform heads")
    pairs, memory, flops = [], [], 0.0
    for pair in range(options.pairs):
        with (
            process(SIDES[0], command(SIDES[0], size, options)) as nanogpt,
            process(SIDES[1], command(SIDES[1], size, options)) as ours,
        ):
            if pair == 0:
                for side in (nanogpt, ours):
                    show(f"{side.name}, matmul FLOPs a token, forward", f"{side.told['flops']:,.0f}")
            flops = 3 * ours.told["flops"] * size.batch * size.context
            pairs.append(interleave([nanogpt.run, ours.run], rounds=options.rounds, repeats=options.steps))
            memory.append((nanogpt.memory(), ours.memory()))
    for index, name in enumerate(SIDES):
        median = float(np.median(np.concatenate([pair[index] for pair in pairs])))
        show(f"{name}, median ms a step", f"{1e3 * median:.1f}, {share_of_peak(flops, median, options)}")
    show("speed relative to nanoGPT", f"{ratio_of_pairs(pairs)}  (95 %, {len(pairs)} pairs of processes)")
    theirs, own = np.median(np.array(memory, dtype=np.float64), axis=0)
    show("peak memory of the processes", f"{theirs / 1e9:.2f} and {own / 1e9:.2f} GB: {100 * own / theirs:.0f} %")


def command(side: str, size: Size, options: argparse.Namespace) -> list[str]:
    words = [__file__, "--side", side, "--sizes", size.name, "--nanogpt", str(options.nanogpt)]
    words += ["--dtype", options.dtype, "--threads", str(options.threads), "--clock", options.clock]
    flags = {"--same-allocator": options.same_allocator, "--compile": options.compile}
    return words + [flag for flag, given in flags.items() if given]


def prepare(size: Size, options: argparse.Namespace) -> Prepared:
    torch.set_num_threads(options.threads)
    return (nanogpt_step if options.side == SIDES[0] else our_step)(size, options)


def our_step(size: Size, options: argparse.Namespace) -> Prepared:
    keep_freed_memory()
    recipe = make_recipe(size, schedule="uniform", dtype=options.dtype, threads=options.threads)
    recipe = replace(recipe, device=replace(recipe.device, compile=options.compile))
    return training_step(recipe, size), {"flops": recipe.model.cost(size.vocab_size).matmul_flops_per_token}


def nanogpt_step(size: Size, options: argparse.Namespace) -> Prepared:
    if options.same_allocator:
        keep_freed_memory()
    sys.path.insert(0, str(options.nanogpt))
    import model as nanogpt

    settings = {"block_size": size.context, "vocab_size": size.vocab_size, "dropout": 0.0, "bias": False}
    network = nanogpt.GPT(
        nanogpt.GPTConfig(n_layer=size.layers, n_head=size.heads, n_embd=size.d_model, **settings)
    ).train()
    matrices = sum(2 * m.in_features * m.out_features for m in network.modules() if isinstance(m, nn.Linear))
    optimizer = network.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu")
    run = torch.compile(network) if options.compile else network
    tokens = random_tokens(size)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16")
    window = np.arange(size.context + 1)

    def step() -> None:
        starts = torch.randint(len(tokens) - size.context, (size.batch, 1)).numpy()
        ids = torch.from_numpy(tokens[starts + window].astype(np.int64))
        with autocast:
            _, loss = run(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step, {"flops": matrices + size.layers * 4 * size.context * size.d_model}


if __name__ == "__main__":
    main()
