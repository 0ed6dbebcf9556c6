"""On a GPU: are the gradients right, and how fast are uniform and prism at the paper's three scales?

    python benchmarks/gpu.py [--minutes 8] [--out gpu.json]

First the gradients of every fused attention kernel against double precision; then the rate of a large matrix product;
attention alone by head dim; and the whole training step (bf16, compiled layers, fused AdamW) of both schedules in
turns, with the plain loss and with the loss in chunks. What the minutes do not allow is left out, and said; what fails
is told, and the rest goes on. The paper's small model ran at 359,000 tokens a second and GPU, on H100s.
"""

import argparse
import gc
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import show

from prism_transformer.benchmark.attention import attention_functions, time_kernels
from prism_transformer.benchmark.inspection import attention_kernels, compilation_counted
from prism_transformer.benchmark.peak import device_peak, product_rate
from prism_transformer.benchmark.timing import interleave, repeats_of, speed_ratio, turn_of, waiting
from prism_transformer.benchmark.workloads import build_model, training
from prism_transformer.kernels.linear_cross_entropy import linear_cross_entropy
from prism_transformer.model.modeling_prism import sum_of_token_losses
from prism_transformer.reproduce.paper import SPEEDS
from prism_transformer.training.build import compile_layers
from prism_transformer.training.device import Device, choose_device
from prism_transformer.training.metrics import tokens_per_second
from prism_transformer.training.recipe import ModelSettings, Recipe, with_model, with_training
from prism_transformer.training.recipe_files import load_recipe
from prism_transformer.training.state import environment

VOCABULARY = 50_257
"""GPT-2's; the recipes pad it to 50,304 rows."""
START = time.monotonic()
MICRO_BATCH = {"small": 32, "medium": 16, "large": 16, "tiny": 2}
ARMS = ("uniform", "prism")
PAPER_SMALL = SPEEDS["small"] / 8  # GPUs
LOSSES = {"plain": sum_of_token_losses, "in chunks": linear_cross_entropy}
LARGEST_ERROR = {torch.bfloat16: 1e-2, torch.float32: 1e-3}  # float32 products are rounded to TF32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--scales", nargs="+", choices=MICRO_BATCH, default=["small", "medium", "large"])
    parser.add_argument("--minutes", type=float, default=8.0, help="nothing new is begun after so long")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="where the figures are kept as JSON")
    options = parser.parse_args()
    deadline = START + 60 * options.minutes
    first = scale(options.scales[0], options)
    device = choose_device(first.device)
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), **environment(), "left_out": []}
    found["cudnn"] = torch.backends.cudnn.version()
    measured = product_rate(device.device, device.dtype, size=8192 if device.device.type == "cuda" else 256)
    sheet = device_peak(device) if device.device.type == "cuda" else None
    found["peak"] = {"measured": measured, "data_sheet": sheet.flops if sheet else None}
    show("device", f"{found['gpu'] or found['processor']}, {device.dtype}, {found['date']}")
    show("matrix products", f"{measured / 1e12:.3g} TFLOP/s")
    parts: dict[str, Callable[[], Any]] = {"gradients": lambda: check_gradients(first, device)}
    parts["attention"] = lambda: attention_alone([scale(each, options) for each in options.scales], device, measured)
    for name in options.scales:
        parts[name] = lambda name=name: whole_step(name, scale(name, options), device, measured, options, deadline)
    for name, part in parts.items():
        if time.monotonic() > deadline:
            found["left_out"].append(name)
        else:
            print(f"\n{name}", flush=True)
            found[name] = outcome(part)
        options.out.write_text(json.dumps(found, indent=1))
    show("left out for want of time", ", ".join(found["left_out"]) or "nothing")


def outcome(part: Callable[[], Any]) -> Any:
    """What a part has found, or why it failed: another part may still tell something."""
    try:
        return part()
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        gc.collect()  # a compiled module refers to itself
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def scale(name: str, options: argparse.Namespace) -> Recipe:
    if name == "tiny":
        recipe = Recipe(model=ModelSettings(layers=2, d_model=32, heads=4, context=32))
    else:
        recipe = load_recipe(name).recipe
    micro = MICRO_BATCH[name]
    dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    recipe = with_training(recipe, micro_batch=micro, tokens_per_step=micro * recipe.model.context)
    settings = replace(recipe.device, device=options.device, dtype=dtype, compile=not options.no_compile)
    return replace(recipe, device=settings)


def check_gradients(recipe: Recipe, device: Device) -> dict[str, float]:
    """Largest relative error of values and gradients to fp64: attention in every kernel by head dim, and the loss."""
    found = {}
    d_model = recipe.model.d_model
    for head_dim in (each for each in (32, 64, 96, 128, 192, 256) if each <= d_model and d_model % each == 0):
        shape = (2, d_model // head_dim, min(256, recipe.model.context), head_dim)
        q, k, v, dy = (torch.randn(shape, device=device.device, dtype=device.dtype) for _ in range(4))
        exact = derived(plain_attention, [q.double(), k.double(), v.double()], dy.double())
        for name, attend in attention_functions(*(x.clone().requires_grad_() for x in (q, k, v))).items():
            found[f"{name}, head dim {head_dim}"] = largest_error(derived(attend, [q, k, v], dy), exact)
    hidden = torch.randn(1, 256, d_model, device=device.device, dtype=device.dtype)
    weight = torch.randn(512, d_model, device=device.device, dtype=device.dtype) / d_model**0.5
    labels = torch.randint(512, (1, 256), device=device.device)
    for name, loss in LOSSES.items():
        exact = derived(lambda h, w: sum_of_token_losses(h, w, labels), [hidden.double(), weight.double()])
        own = derived(lambda h, w, loss=loss: loss(h, w, labels), [hidden, weight])
        found[f"loss {name}"] = largest_error(own, exact)
    allowed = LARGEST_ERROR[device.dtype]
    for name, error in found.items():
        show(f"{name}, relative error", f"{error:.1e} ({'ok' if error < allowed else 'FAILS'})")
    return found


def plain_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, float("-inf")).softmax(-1) @ v


def derived(
    function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], dy: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """The value of `function` and its gradients."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def largest_error(own: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(own, exact, strict=True))


def attention_alone(recipes: list[Recipe], device: Device, peak: float) -> list[dict[str, Any]]:
    rows = []
    for recipe in recipes:
        dims = {dim for arm in ARMS for dim in with_model(recipe, schedule=arm).model.head_schedule().head_dims}
        rows += time_kernels(
            d_model=recipe.model.d_model,
            head_dims=sorted(dims),
            contexts=[recipe.model.context],
            batch=min(8, recipe.training.micro_batch),
            device=device,
            peak=peak,
            rounds=3,
            turn_seconds=0.02,
        )
    for row in rows:
        ahead, back = 1e3 * row["forward_seconds"], 1e3 * row["backward_seconds"]
        share = f"{100 * row['both_share_of_peak']:.0f} % of peak"
        shape = f"d_model {row['head_dim'] * row['heads']}, head dim {row['head_dim']}, {row['kernel']}"
        show(shape, f"{ahead:.3f} + {back:.3f} ms, {share}")
    return rows


def whole_step(
    name: str, recipe: Recipe, device: Device, peak: float, options: argparse.Namespace, deadline: float
) -> dict[str, Any]:
    """Both arms in turns, with the loss that is faster for uniform."""
    found: dict[str, Any] = {"micro_batch": recipe.training.micro_batch, "arms": {}}
    steps, kept = {}, {}
    for arm in ARMS:
        of_arm = with_model(recipe, schedule=arm)
        model = build_model(of_arm, device, vocab_size=VOCABULARY)
        step = training(model, of_arm, device)
        entry: dict[str, Any] = {"heads": str(of_arm.model.head_schedule())}
        entry["kernels"] = attention_kernels(model, step.run)
        before = time.monotonic()
        with compilation_counted() as compiled:
            if recipe.device.compile:
                compile_layers(model, sharded=False)
            step.run()
        entry |= {"seconds_to_first_step": time.monotonic() - before, "graphs": vars(compiled)}
        steps[arm], kept[arm], found["arms"][arm] = step, model, entry
    uniform = found["loss"] = {}
    for loss, function in LOSSES.items():
        kept["uniform"].loss_function_of_hidden = function
        turn = turn_of(steps["uniform"].run, wait=waiting(device))
        turn(2)
        uniform[loss] = turn(3) / 3
    best = min(uniform, key=lambda loss: uniform[loss])
    for model in kept.values():
        model.loss_function_of_hidden = LOSSES[best]
    show("loss", f"{best} ({', '.join(f'{loss} {1e3 * s:.1f} ms a step' for loss, s in uniform.items())})")
    turns = [turn_of(step.run, wait=waiting(device)) for step in steps.values()]
    rounds = options.rounds if time.monotonic() < deadline else 3
    seconds = interleave(turns, rounds=rounds, repeats=repeats_of(turns))
    for row, arm in zip(seconds, ARMS, strict=True):
        entry, median = found["arms"][arm], float(np.median(row))
        entry["tokens_per_second"] = tokens_per_second(steps[arm].tokens, median)
        entry["share_of_peak"] = steps[arm].flops / median / peak
        entry["seconds"] = row.tolist()
        entry["memory"] = memory(steps[arm].run, device)
        gigabytes = f", {entry['memory'] / 1e9:.1f} GB" if entry["memory"] else ""
        against = f", ×{entry['tokens_per_second'] / PAPER_SMALL:.2f} of the paper's" if name == "small" else ""
        told = f"{entry['tokens_per_second']:,.0f} tokens/s, {100 * entry['share_of_peak']:.1f} % of peak"
        show(f"{arm} {entry['heads']}", told + gigabytes + against)
        show("  attention; graphs", f"{', '.join(sorted(set(entry['kernels'])))}; {entry['graphs']}")
    ratio = speed_ratio(*seconds)
    found["prism_to_uniform"] = ratio._asdict()
    show("speed of prism relative to uniform", f"{ratio}  (95 %, {rounds} rounds)")
    return found


def memory(run: Callable[[], object], device: Device) -> int | None:
    """Bytes of tensors at the peak of one step, with all that lives beside it: the other arm's weights too."""
    if device.device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    main()
