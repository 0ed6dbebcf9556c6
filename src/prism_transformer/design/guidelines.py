"""Soft rules: what a legal schedule should also keep, to be worth training and to run fast on a device.

The hard rules are `HeadSchedule.check`. Here a warning is advice; only a tensor-parallel size that cannot work fails.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from ..errors import InputError
from ..model.head_schedule import HeadSchedule, RuleResult
from ..wording import count

Device = Literal["cuda", "cuda-consumer", "mps", "cpu"]
"""cuda-consumer: compute capability 8.6 to 8.9 and 12.x (GeForce and workstation cards since 2020)."""

DType = Literal["bfloat16", "float16", "float32"]

PHASE_LAYERS = (2, 4)
"""Layers that a widened phase should hold (paper, section 3: staircase smoothness)."""

FUSED_LIMIT = 256
"""Widest head dim of FlashAttention and cuDNN in PyTorch's scaled_dot_product_attention."""

CONSUMER_BACKWARD_GAP = (192, 224)
"""Above 192 up to 224: FlashAttention has no backward pass on consumer cards; above 224 it has one without dropout."""

MIN_HEAD_DIM, HEAD_DIM_STEP = 32, 8


def check_guidelines(
    schedule: HeadSchedule,
    *,
    base_heads: int | None = None,
    device: Device = "cuda",
    dtype: DType = "bfloat16",
    tensor_parallel: int | None = None,
) -> list[RuleResult]:
    """staircase, baseline, fused-kernel, alignment and tensor-parallel, each pass, warn or fail with a sentence.

    `base_heads` defaults to the schedule's largest count. Raises `InputError` for an unknown device or dtype.
    """
    known: list[tuple[str, str, Sequence[str]]] = [
        ("device", device, get_args(Device)),
        ("dtype", dtype, get_args(DType)),
    ]
    problems = [
        f"{what}={value!r} is unknown; known: {', '.join(names)}" for what, value, names in known if value not in names
    ]
    if tensor_parallel is not None and tensor_parallel < 1:
        problems.append(f"tensor-parallel size {tensor_parallel} is not positive")
    if problems:
        raise InputError(problems)
    base = schedule.base_heads if base_heads is None else base_heads
    return [
        _staircase(schedule, base),
        _baseline(schedule, base),
        _fused_kernel(schedule, device, dtype),
        _alignment(schedule, device),
        _tensor_parallel(schedule, tensor_parallel),
    ]


def tensor_parallel_limit(schedule: HeadSchedule) -> int:
    """The largest number of devices that can split the heads of every layer evenly: the gcd of the head counts."""
    return math.gcd(*schedule.heads)


def _staircase(schedule: HeadSchedule, base: int) -> RuleResult:
    low, high = PHASE_LAYERS
    off = [(heads, layers) for heads, layers in schedule.phases if heads != base and not low <= layers <= high]
    if off:
        heads, layers = off[0]
        more = f" (and {len(off) - 1} more)" if len(off) > 1 else ""
        held = f"the step of {count(heads, 'head')} holds {count(layers, 'layer')}{more}"
        return RuleResult("staircase", "warn", f"{held}; the guideline is {low} to {high} layers a step")
    return RuleResult("staircase", "pass", f"every step before the base holds {low} to {high} layers")


def _baseline(schedule: HeadSchedule, base: int) -> RuleResult:
    kept, total = schedule.heads.count(base), schedule.n_layers
    found = f"{kept} of {count(total, 'layer')} have the base's {count(base, 'head')}"
    if 2 * kept < total:
        return RuleResult("baseline", "warn", f"{found}; the guideline is at least half")
    return RuleResult("baseline", "pass", f"{found}, at least half")


def _fused_kernel(schedule: HeadSchedule, device: Device, dtype: DType) -> RuleResult:
    if device == "cpu":
        return RuleResult("fused-kernel", "pass", "the CPU kernel takes any head dim")
    if device == "mps":
        return RuleResult("fused-kernel", "pass", "PyTorch on MPS trains with unfused attention at any head dim")
    if dtype == "float32":
        sentence = "float32 has no FlashAttention on CUDA at any head dim; bfloat16 and float16 have"
        return RuleResult("fused-kernel", "warn", sentence)
    widest = max(schedule.head_dims)
    if widest > FUSED_LIMIT:
        where = f"head dim {widest} of layer {schedule.head_dims.index(widest)}"
        sentence = f"{where} is above {FUSED_LIMIT}: no FlashAttention, PyTorch takes a slower kernel silently"
        return RuleResult("fused-kernel", "warn", sentence)
    low, high = CONSUMER_BACKWARD_GAP
    wide = [(dim, layer) for layer, dim in enumerate(schedule.head_dims) if dim > low]
    if device == "cuda-consumer" and wide:
        dim, layer = min(wide)
        limit = "no FlashAttention backward" if dim <= high else "FlashAttention backward only with dropout 0"
        return RuleResult("fused-kernel", "warn", f"head dim {dim} of layer {layer}: {limit} on consumer cards")
    return RuleResult("fused-kernel", "pass", f"every head dim is at most {FUSED_LIMIT}, as FlashAttention needs")


def _alignment(schedule: HeadSchedule, device: Device) -> RuleResult:
    if device not in ("cuda", "cuda-consumer"):
        return RuleResult("alignment", "pass", f"no preferred head dim on {device}")
    for layer, dim in enumerate(schedule.head_dims):
        if dim % HEAD_DIM_STEP:
            sentence = (
                f"head dim {dim} of layer {layer} is no multiple of {HEAD_DIM_STEP}: CUDA kernels pad it or refuse"
            )
            return RuleResult("alignment", "warn", sentence)
        if dim < MIN_HEAD_DIM:
            sentence = f"head dim {dim} of layer {layer} is below {MIN_HEAD_DIM}: too small to fill CUDA's matrix units"
            return RuleResult("alignment", "warn", sentence)
    return RuleResult("alignment", "pass", f"every head dim is a multiple of {HEAD_DIM_STEP}, {MIN_HEAD_DIM} or more")


def _tensor_parallel(schedule: HeadSchedule, size: int | None) -> RuleResult:
    limit = tensor_parallel_limit(schedule)
    if size is not None and limit % size:
        layer = next(layer for layer, heads in enumerate(schedule.heads) if heads % size)
        split = f"layer {layer} has {schedule.heads[layer]} heads, no multiple of {size}"
        return RuleResult(
            "tensor-parallel", "fail", f"{split}; the largest size that fits every layer is {limit} (the gcd)"
        )
    if size is not None:
        return RuleResult("tensor-parallel", "pass", f"{size} devices can share the heads of every layer evenly")
    if limit == 1:
        return RuleResult("tensor-parallel", "warn", "the gcd of the heads is 1: no devices can share them evenly")
    return RuleResult("tensor-parallel", "pass", f"up to {limit} devices can share the heads evenly (their gcd)")
