"""How fast are tokens written, one by one, against transformers' generate on its GPT-2 of the same size?

    python benchmarks/decode_against_gpt2.py [--sizes 124M] [--dtype float32] [--threads 2]

Batch 1, greedy, a prompt of --prompt tokens and --new tokens after it. GPT-2 runs as its users run it: generate with
its own defaults. Here it is generate too, with a static cache; the third side is the same without one. Each side has a
process of its own. Weights are random: the time of a token does not depend on them.
"""

import argparse
import functools
from collections.abc import Callable

import numpy as np
import torch
from _timing import (
    SIZES,
    Size,
    arguments,
    describe_machine,
    describe_setting,
    make_recipe,
    process,
    ratio_of_pairs,
    serve,
    show,
)
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from prism_transformer.benchmark.timing import interleave
from prism_transformer.kernels.allocation import keep_freed_memory
from prism_transformer.kernels.choose import use_fast_generation
from prism_transformer.model.modeling_prism import PrismForCausalLM

SIDES = ("GPT-2", "static cache", "growing cache")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(sizes=["124M"], steps=1)
    parser.add_argument("--rounds", type=int, default=6, help="rounds of one set of processes")
    parser.add_argument("--pairs", type=int, default=3, help="sets of fresh processes")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens to write")
    parser.add_argument("--schedule", default="uniform", help="of the model here")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = SIZES[options.sizes[0]]
    if options.side:
        serve(functools.partial(prepare, size, options), clock=options.clock)
        return
    print(describe_machine(), describe_setting(options), sep="\n")
    for name in options.sizes:
        compare(SIZES[name], options)


def compare(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}; {options.prompt} tokens of prompt, {options.new} new ones, {options.schedule} heads here")
    sets = []
    for _ in range(options.pairs):
        with (
            process(SIDES[0], command(SIDES[0], size, options)) as gpt2,
            process(SIDES[1], command(SIDES[1], size, options)) as static,
            process(SIDES[2], command(SIDES[2], size, options)) as growing,
        ):
            turns = [gpt2.run, static.run, growing.run]
            sets.append(interleave(turns, rounds=options.rounds, repeats=options.steps))
    for index, name in enumerate(SIDES):
        median = float(np.median(np.concatenate([each[index] for each in sets])))
        show(f"{name}, tokens/s", f"{options.new / median:.1f}")
    for index, name in enumerate(SIDES[1:], start=1):
        ratio = ratio_of_pairs([each[[0, index]] for each in sets])
        show(f"{name}, speed relative to GPT-2", f"{ratio}  (95 %, {len(sets)} sets of processes)")


def command(side: str, size: Size, options: argparse.Namespace) -> list[str]:
    words = [__file__, "--side", side, "--sizes", size.name, "--schedule", options.schedule, "--dtype", options.dtype]
    words += ["--threads", str(options.threads), "--clock", options.clock]
    return [*words, "--prompt", str(options.prompt), "--new", str(options.new)]


def prepare(size: Size, options: argparse.Namespace) -> tuple[Callable[[], object], dict[str, float]]:
    torch.set_num_threads(options.threads)
    cache: dict[str, str] = {}
    if options.side == "GPT-2":
        settings = {"vocab_size": size.vocab_size, "n_positions": size.context, "n_embd": size.d_model}
        config = GPT2Config(n_layer=size.layers, n_head=size.heads, bos_token_id=0, eos_token_id=0, **settings)
        model: PreTrainedModel = GPT2LMHeadModel(config)
    else:
        keep_freed_memory()
        recipe = make_recipe(size, schedule=options.schedule, dtype=options.dtype, threads=options.threads)
        model = PrismForCausalLM(recipe.model.config(size.vocab_size, end_of_text=0))
        cache = {"cache_implementation": "static"} if options.side == "static cache" else {}
    model.eval().to(getattr(torch, options.dtype))
    if options.side != "GPT-2":
        use_fast_generation(model, torch.device("cpu"), getattr(torch, options.dtype))
    ids = torch.randint(1, size.vocab_size, (1, options.prompt))
    lengths = {"max_new_tokens": options.new, "min_new_tokens": options.new}
    mask = torch.ones_like(ids)

    def write() -> None:
        model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths, **cache)

    return write, {"parameters": model.num_parameters()}


if __name__ == "__main__":
    main()
