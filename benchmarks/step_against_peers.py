"""Is a training step here as fast as a peer's, at equal matrix FLOPs, and how much memory does it take?

    python benchmarks/step_against_peers.py --peer nanogpt --nanogpt CHECKOUT [--sizes demo 12M] [--dtype float32]
    python benchmarks/step_against_peers.py --peer llama [--sizes demo 12M] [--dtype float32]

nanoGPT comes from a checkout of github.com/karpathy/nanoGPT and runs eagerly, as its own training script would run it
on a CPU. Its MLP has two matrices of width 4 d and GELU; SwiGLU has three of width 8 d / 3: as many FLOPs, which are
printed as counted from both models. llama is transformers' Llama with the settings that make it the same network as
the one here. All have tied embeddings, the same vocabulary and uniform heads, and a step is a batch, forward, loss,
backward, clipping and AdamW. Each side has a process of its own, as its users would start it: this package's keeps the
memory that it frees, as `prism train` does. Processes are restarted: where their memory happens to lie is part of the
error.

--same-allocator gives the peer the kept memory too; --compile compiles it, and the layers here as well; --recompute is
the setting of that name, here alone. --memory runs one step of each side alone, where both together take more memory
than there is.
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
    describe_setting,
    make_recipe,
    peak_of,
    process,
    random_tokens,
    ratio_of_pairs,
    serve,
    share,
    show,
    training_step,
)
from torch import nn

from prism_transformer.benchmark.timing import interleave
from prism_transformer.cost import default_intermediate_size
from prism_transformer.kernels.allocation import keep_freed_memory

HERE = "prism-transformer"
NAMES = {"nanogpt": "nanoGPT", "llama": "Llama of transformers"}
Prepared = tuple[Callable[[], object], dict[str, float]]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=NAMES, default="nanogpt", help="what is timed against")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of one pair of processes")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of fresh processes")
    parser.add_argument("--same-allocator", action="store_true", help="the peer keeps its freed memory too")
    parser.add_argument("--compile", action="store_true", help="both compiled")
    parser.add_argument("--recompute", action="store_true", help="layers here are computed twice, to save memory")
    parser.add_argument("--memory", action="store_true", help="only the peak memory, of each side alone")
    parser.add_argument("--side", choices=["peer", "here"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        size = SIZES[options.sizes[0]]
        serve(functools.partial(prepare, size, options), clock=options.clock)
        return
    if options.peer == "nanogpt" and not (options.nanogpt and (options.nanogpt / "model.py").exists()):
        parser.error(f"--nanogpt {options.nanogpt}: no model.py there; give a checkout of nanoGPT")
    print(describe_machine(), describe_setting(options), sep="\n")
    peer = NAMES[options.peer]
    allocator = f"{peer} too keeps its freed memory" if options.same_allocator else f"{peer} with the usual allocator"
    print(f"{allocator}; {'both compiled' if options.compile else 'both eager'}")
    for name in options.sizes:
        (compare_memory if options.memory else compare)(SIZES[name], options)


def compare_memory(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}; uniform heads")
    peaks = []
    for name, side in ((NAMES[options.peer], "peer"), (HERE, "here")):
        with process(name, command(side, size, options)) as alone:
            alone.run(1)
            peaks.append(alone.memory())
    show_memory(*peaks)


def show_memory(of_peer: float, own: float) -> None:
    show("peak memory of the processes", f"{of_peer / 1e9:.2f} and {own / 1e9:.2f} GB: {100 * own / of_peer:.0f} %")


def compare(size: Size, options: argparse.Namespace) -> None:
    print(f"\n{size}; uniform heads")
    peer = NAMES[options.peer]
    pairs, memory, flops, peak = [], [], 0.0, peak_of(options)
    for pair in range(options.pairs):
        with (
            process(peer, command("peer", size, options)) as theirs,
            process(HERE, command("here", size, options)) as ours,
        ):
            if pair == 0:
                for side in (theirs, ours):
                    show(f"{side.name}, matmul FLOPs a token, forward", f"{side.told['flops']:,.0f}")
            flops = 3 * ours.told["flops"] * size.batch * size.context
            pairs.append(interleave([theirs.run, ours.run], rounds=options.rounds, repeats=options.steps))
            memory.append((theirs.memory(), ours.memory()))
    for index, name in enumerate((peer, HERE)):
        median = float(np.median(np.concatenate([pair[index] for pair in pairs])))
        show(f"{name}, median ms a step", f"{1e3 * median:.1f}, {share(flops, median, peak)}")
    show(f"speed relative to {peer}", f"{ratio_of_pairs(pairs)}  (95 %, {len(pairs)} pairs of processes)")
    show_memory(*np.median(np.array(memory, dtype=np.float64), axis=0))


def command(side: str, size: Size, options: argparse.Namespace) -> list[str]:
    words = [__file__, "--side", side, "--sizes", size.name, "--peer", options.peer]
    words += ["--nanogpt", str(options.nanogpt)] if options.nanogpt else []
    words += ["--dtype", options.dtype, "--threads", str(options.threads), "--clock", options.clock]
    names = ("same_allocator", "compile", "recompute")
    flags = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}
    return words + [flag for flag, given in flags.items() if given]


def prepare(size: Size, options: argparse.Namespace) -> Prepared:
    torch.set_num_threads(options.threads)
    if options.side == "here":
        return our_step(size, options)
    if options.same_allocator:
        keep_freed_memory()
    return {"nanogpt": nanogpt_step, "llama": llama_step}[options.peer](size, options)


def our_step(size: Size, options: argparse.Namespace) -> Prepared:
    keep_freed_memory()
    recipe = make_recipe(size, schedule="uniform", dtype=options.dtype, threads=options.threads)
    recipe = replace(recipe, device=replace(recipe.device, compile=options.compile, recompute=options.recompute))
    return training_step(recipe, size), {"flops": recipe.model.cost(size.vocab_size).matmul_flops_per_token}


def nanogpt_step(size: Size, options: argparse.Namespace) -> Prepared:
    sys.path.insert(0, str(options.nanogpt))
    import model as nanogpt

    settings = {"block_size": size.context, "vocab_size": size.vocab_size, "dropout": 0.0, "bias": False}
    network = nanogpt.GPT(
        nanogpt.GPTConfig(n_layer=size.layers, n_head=size.heads, n_embd=size.d_model, **settings)
    ).train()
    optimizer = network.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu")
    run = torch.compile(network) if options.compile else network
    return usual_step(network, lambda inputs, labels: run(inputs, labels)[1], optimizer, size, options)


def llama_step(size: Size, options: argparse.Namespace) -> Prepared:
    from transformers import LlamaConfig, LlamaForCausalLM

    recipe = make_recipe(size, schedule="uniform", dtype=options.dtype, threads=options.threads)
    network = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=size.d_model,
            intermediate_size=recipe.model.ffn or default_intermediate_size(size.d_model),
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            max_position_embeddings=size.context,
            vocab_size=size.vocab_size,
            tie_word_embeddings=True,
            use_cache=False,
        )
    ).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    run = torch.compile(network) if options.compile else network

    def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return run(inputs, labels=labels, shift_labels=labels).loss

    return usual_step(network, loss_of, optimizer, size, options)


def usual_step(
    network: nn.Module,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    size: Size,
    options: argparse.Namespace,
) -> Prepared:
    """A training step in plain PyTorch."""
    matrices = sum(2 * m.in_features * m.out_features for m in network.modules() if isinstance(m, nn.Linear))
    tokens = random_tokens(size)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16")
    window = np.arange(size.context + 1)

    def step() -> None:
        starts = torch.randint(len(tokens) - size.context, (size.batch, 1)).numpy()
        ids = torch.from_numpy(tokens[starts + window].astype(np.int64))
        with autocast:
            loss = loss_of(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step, {"flops": matrices + size.layers * 4 * size.context * size.d_model}


if __name__ == "__main__":
    main()
