"""Is a training step of the prism schedule as fast as one of uniform heads?

    python benchmarks/prism_against_uniform.py [--sizes demo 12M] [--dtype float32]

Both models live in one process and take turns. The paper reports equal throughput on GPUs (section 4); equal matrix
FLOPs are not equal work, since wide heads have fewer softmax entries, so it is measured here.
"""

from _timing import (
    SIZES,
    Size,
    alternate,
    arguments,
    describe_machine,
    make_recipe,
    median_speed,
    seconds_of,
    show,
    training_step,
)

from prism_transformer.kernels.allocation import keep_freed_memory

ARMS = ("uniform", "prism")


def compare(size: Size, *, dtype: str, threads: int, clock: str, rounds: int, steps: int) -> None:
    print(f"\n{size}")
    timed = []
    for arm in ARMS:
        recipe = make_recipe(size, schedule=arm, dtype=dtype, threads=threads)
        cost = recipe.model.cost(size.vocab_size)
        show(f"{arm}, heads x layers", recipe.model.head_schedule())
        show("  matmul FLOPs a token, forward", f"{cost.matmul_flops_per_token:,}")
        show("  softmax entries a sequence", f"{cost.softmax_entries:,}")
        timed.append(seconds_of(training_step(recipe, size), clock=clock))
    found = alternate(*timed, rounds=rounds, steps=steps)
    for arm, seconds in zip(ARMS, (found.first, found.second), strict=True):
        show(f"{arm}, median ms a step", f"{1e3 * sorted(seconds)[len(seconds) // 2]:.1f}")
    show("speed of prism relative to uniform", f"{median_speed(found.log_speeds)}  (95 %, {rounds} rounds)")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="rounds of both arms")
    options = parser.parse_args()
    keep_freed_memory()  # as `prism train` and `prism compare` do
    print(describe_machine(options))
    for name in options.sizes:
        compare(
            SIZES[name],
            dtype=options.dtype,
            threads=options.threads,
            clock=options.clock,
            rounds=options.rounds,
            steps=options.steps,
        )


if __name__ == "__main__":
    main()
