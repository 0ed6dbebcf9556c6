"""Is a training step of the prism schedule as fast as one of uniform heads?

    python benchmarks/prism_against_uniform.py [--sizes demo 12M] [--dtype float32]

Both models live in one process and take turns. The paper reports equal throughput on GPUs (section 4); equal matrix
FLOPs are not equal work, since wide heads have fewer softmax entries, so it is measured here.
"""

import argparse

import numpy as np
from _timing import (
    SIZES,
    Size,
    arguments,
    describe_machine,
    describe_setting,
    make_recipe,
    peak_of,
    share,
    show,
    training_step,
)

from prism_transformer.benchmark.timing import interleave, speed_ratio, turn_of
from prism_transformer.kernels.allocation import keep_freed_memory

ARMS = ("uniform", "prism")


def compare(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}")
    turns, flops = [], {}
    for arm in ARMS:
        recipe = make_recipe(size, schedule=arm, dtype=options.dtype, threads=options.threads)
        cost = recipe.model.cost(size.vocab_size)
        flops[arm] = 3 * cost.matmul_flops_per_token * size.batch * size.context
        show(f"{arm}, heads x layers", recipe.model.head_schedule())
        show("  matmul FLOPs a token, forward", f"{cost.matmul_flops_per_token:,}")
        show("  softmax entries a sequence", f"{cost.softmax_entries:,}")
        turns.append(turn_of(training_step(recipe, size), clock=options.clock))
    peak = peak_of(options)
    seconds = interleave(turns, rounds=options.rounds, repeats=options.steps)
    for arm, row in zip(ARMS, seconds, strict=True):
        median = float(np.median(row))
        show(f"{arm}, median ms a step", f"{1e3 * median:.1f}, {share(flops[arm], median, peak)}")
    show("speed of prism relative to uniform", f"{speed_ratio(*seconds)}  (95 %, {options.rounds} rounds)")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="rounds of both arms")
    options = parser.parse_args()
    keep_freed_memory()  # as `prism train` and `prism compare` do
    print(describe_machine(), describe_setting(options), sep="\n")
    for name in options.sizes:
        compare(SIZES[name], options)


if __name__ == "__main__":
    main()
