"""What `prism bench` prints."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..wording import count

COLUMNS = 80
Found = Mapping[str, Any]


def bench_lines(found: Found) -> list[str]:
    """Device and sizes, a block for each workload, memory, kernels, and what makes a comparison unfair."""
    lines = [*_head(found), ""]
    width = min(24, max(len(name) for name in found["arms"]))
    for work in found["settings"]["work"]:
        lines += [*_work(found, work, width), ""]
    lines += _memory(found, width)
    lines += [*_kernels(found), ""]
    for name, reasons in found["unfair"].items():
        lines += _wrapped(f"UNFAIR: {name} and {found['baseline']} did not run alike: {'; '.join(reasons)}")
    if found["ratios"]:
        note = (
            f"ratio: tokens/s relative to {found['baseline']} within a round, median of "
            f"{found['settings']['rounds']} rounds with its 95 % interval."
        )
        lines += _wrapped(note)
    return lines


def _head(found: Found) -> list[str]:
    device, sizes, peak = found["device"], found["sizes"], found["peak"]
    threads = f", {count(found['threads'], 'thread')}" if found["threads"] else ""
    compiled = ", layers compiled" if found["compile"] else ""
    lines = _wrapped(f"{device['gpu'] or device['processor']}{threads}, {device['dtype']}{compiled}")
    if peak:
        lines += _wrapped(f"peak {_flops(peak['flops'])}: {peak['source']}")
    else:
        lines += _wrapped("peak: not known for this device, so no share of it is told")
    told = f"{sizes['layers']} layers, d_model {sizes['d_model']}, context {sizes['context']}, vocabulary "
    return [*lines, *_wrapped(f"{told}{sizes['vocab_size']:,}, micro-batch {sizes['micro_batch']}")]


def _work(found: Found, work: str, width: int) -> list[str]:
    titles = {
        "training": "training: a step of one micro-batch",
        "prefill": "prefill: reading one context, batch 1",
        "decode": "decode: writing the last tokens of a context, batch 1",
    }
    lines = [titles[work], f"  {'arm':{width}}  {'tokens/s':>11}  {'of peak':>8}  ratio"]
    for name, entry in found["arms"].items():
        timed = entry[work]
        share = "–" if timed["share_of_peak"] is None else f"{100 * timed['share_of_peak']:.1f} %"
        ratio = found["ratios"].get(name, {}).get(work)
        told = f"×{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else "baseline"
        told += "  unfair" if name in found["unfair"] else ""
        shown = textwrap.wrap(name, width)
        lines.append(f"  {shown[0]:{width}}  {timed['tokens_per_second']:>11,.0f}  {share:>8}  {told}")
        lines += [f"  {rest}" for rest in shown[1:]]
    return lines


def _memory(found: Found, width: int) -> list[str]:
    known = {name: entry["peak_memory"] for name, entry in found["arms"].items() if entry.get("peak_memory")}
    if not known:
        return []
    of = "tensors on the device" if found["device"]["gpu"] else "a process that only trains"
    lines = [f"peak memory of a training step ({of})"]
    lines += [f"  {textwrap.shorten(name, width):{width}}  {bytes_ / 1e9:>11.2f} GB" for name, bytes_ in known.items()]
    return [*lines, ""]


def _kernels(found: Found) -> list[str]:
    """The attention kernel by layer; one line where all layers of an arm have the same."""
    lines = ["attention kernels, and graphs of torch.compile"]
    for name, entry in found["arms"].items():
        told = []
        by_kernels: dict[tuple[str, ...], list[str]] = {}
        for work, kernels in entry["kernels"].items():
            by_kernels.setdefault(tuple(kernels), []).append(work)
        for kernels, works in by_kernels.items():
            told.append(f"{', '.join(works)}: {_layers(kernels, entry['head_dims'])}")
        if entry["compiled"]:
            counts = entry["compiled"]
            told.append(f"{counts['graphs']} graphs, {counts['breaks']} breaks, {counts['fallbacks']} fall-backs")
        lines += _wrapped(f"{name}, {entry['heads']}: {'; '.join(told)}", indent="  ")
    return lines


def _layers(kernels: Sequence[str], head_dims: Sequence[int]) -> str:
    """flash (head dim 256, 64), plain (head dim 384)."""
    dims: dict[str, list[int]] = {}
    for kernel, head_dim in zip(kernels, head_dims, strict=True):
        dims.setdefault(kernel, []).append(head_dim)
    return ", ".join(f"{kernel} (head dim {', '.join(map(str, dict.fromkeys(of)))})" for kernel, of in dims.items())


def kernel_lines(found: Found) -> list[str]:
    """A line for each shape and kernel of attention alone."""
    device, peak = found["device"], found["peak"]
    lines = _wrapped(f"{device['gpu'] or device['processor']}, {device['dtype']}, d_model {found['d_model']}")
    lines += _wrapped(f"peak {_flops(peak['flops'])}: {peak['source']}") if peak else []
    lines += ["", f"{'head dim':>8}  {'context':>7}  {'kernel':16}  {'forward':>10}  {'backward':>10}  {'of peak':>8}"]
    for row in found["rows"]:
        share = row["both_share_of_peak"]
        told = "–" if share is None else f"{100 * share:.1f} %"
        ahead, back = (f"{1e3 * row[f'{way}_seconds']:.3g} ms" for way in ("forward", "backward"))
        shape = f"{row['head_dim']:>8}  {row['context']:>7,}"
        lines.append(f"{shape}  {row['kernel']:16}  {ahead:>10}  {back:>10}  {told:>8}")
    note = "of peak: the products of the causal half, forward and backward, over the device's peak."
    return [*lines, "", *_wrapped(note)]


def _flops(rate: float) -> str:
    for size, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s")):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate / 1e6:.3g} MFLOP/s"


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(text, COLUMNS - len(indent), initial_indent=indent, subsequent_indent=indent + "  ")
