"""Families of schedules by rule: the arms of a comparison that have a name instead of a list of heads.

Every family is a function of three sizes: layers, width and base heads. The widest head dim a family uses is
min(4 x base, 256): the paper's schedules start at 4 x base or at 256, and beyond 256 the fused kernels end.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from ..errors import InputError
from ..model.head_schedule import HeadSchedule, ScheduleError, divisors

FAMILIES = {
    "uniform": "the base heads in every layer",
    "uniform-N": "N heads in every layer",
    "sweep": "every legal uniform-N, head dim from the base's to min(4 x base, 256)",
    "prism": "wide heads first, in steps of 2 to 3 layers, then the base heads",
    "reversed": "prism from last layer to first: the same heads in the opposite order",
    "shuffled-K": "prism's heads in the K-th of a fixed sequence of random orders",
    "linear": "heads rising evenly from the widest legal to the base's",
}
"""Name and meaning of each family; N and K stand for a number."""

WIDEST_HEAD_DIM = 256
WIDENED_LAYERS = 6
MAX_SHUFFLE = 999

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,-]*")
_NUMBERED = re.compile(r"(?P<family>uniform|shuffled)-0*(?P<number>[0-9]{1,9})", re.ASCII)


def expand_arm(text: str, *, n_layers: int, d_model: int, base_heads: int) -> dict[str, HeadSchedule]:
    """The schedules that one ARM stands for, by name: many for "sweep", one for anything else.

    ARM is a family of `FAMILIES`, a schedule text ("3x2,6x2,8x2,12x6"; its canonical text becomes the name), or
    NAME=TEXT with either of the two. "sweep" names its members "uniform-N", the base's included.
    Raises `InputError` with every problem.
    """
    name, equals, rest = text.partition("=")
    source = rest.strip() if equals else text.strip()
    name = name.strip()
    if equals and not _NAME.fullmatch(name):
        raise InputError(f"arm {text!r}: {name!r} is no name; use letters, digits, dot, comma, dash and underscore")
    if equals and source == "sweep":
        raise InputError(f"arm {text!r}: a sweep is many schedules and cannot take one name; write sweep")
    if n_layers < 1:
        raise InputError(f"layers={n_layers} must be at least 1")
    try:
        uniform = HeadSchedule.parse(f"{base_heads}x{n_layers}", d_model=d_model)
    except ScheduleError as error:
        raise InputError([f"base heads: {problem}" for problem in error.problems]) from None
    try:
        schedules = _expand(source, uniform)
    except ScheduleError as error:
        raise InputError([f"arm {text}: {problem}" for problem in error.problems]) from None
    return {name: next(iter(schedules.values()))} if equals else schedules


def _expand(source: str, uniform: HeadSchedule) -> dict[str, HeadSchedule]:
    if source[:1].isdigit() or source.startswith("["):
        schedule = HeadSchedule.parse(source, d_model=uniform.d_model, n_layers=uniform.n_layers)
        return {str(schedule): schedule}
    if source == "sweep":
        return {f"uniform-{count}": _same(uniform, [count] * uniform.n_layers) for count in wide_heads(uniform)}
    if source in _BY_RULE:
        return {source: _BY_RULE[source](uniform)}
    numbered = _NUMBERED.fullmatch(source)
    if numbered is None:
        raise InputError(_unknown(source))
    number = int(numbered["number"])
    if numbered["family"] == "uniform":
        return {f"uniform-{number}": _same(uniform, [number] * uniform.n_layers)}
    return {f"shuffled-{number}": _shuffled(uniform, number)}


def _unknown(source: str) -> str:
    if source in ("shuffled", "shuffled-"):
        return "arm 'shuffled' needs a number, the place in its sequence of random orders: shuffled-1"
    examples = {name.replace("N", "6").replace("K", "1"): name for name in FAMILIES}
    near = get_close_matches(source.lower(), examples, n=1, cutoff=0.5)
    known = f"nearest: {examples[near[0]]}" if near else f"known: {', '.join(FAMILIES)}"
    return f"unknown arm {source!r}; {known}, or a schedule like 3x2,6x2,8x2,12x6"


def wide_heads(uniform: HeadSchedule) -> list[int]:
    """The head counts with an even head dim from the base's to min(4 x base, 256), fewest heads first."""
    base = uniform.base_head_dim
    widest = max(base, min(4 * base, WIDEST_HEAD_DIM))
    legal = [k for k in divisors(uniform.d_model) if base < k <= widest and k % 2 == 0]
    return [uniform.d_model // k for k in reversed(legal)] + [uniform.base_heads]


def _prism(uniform: HeadSchedule) -> HeadSchedule:
    """Head dims, widest first: the powers of two above the base's b, up to min(4b, 256), that divide d_model, and 3b/2.

    3b/2 joins where it is an even divisor of d_model below the widest. min(6, L/2) layers are widened, split evenly
    with the earlier phases taking the remainder. Gives the paper's three schedules (section 4) for its three sizes.
    """
    dims = _prism_head_dims(uniform)
    widened = min(WIDENED_LAYERS, uniform.n_layers // 2)
    if not dims:
        raise ScheduleError(_no_widening(uniform))
    if widened == 0:
        raise ScheduleError("one layer cannot be both widened and kept at the base heads; use 2 layers or more")
    share, remainder = divmod(widened, len(dims))
    heads: list[int] = []
    for phase, dim in enumerate(dims):
        heads += [uniform.d_model // dim] * (share + (phase < remainder))
    return _same(uniform, heads + [uniform.base_heads] * (uniform.n_layers - widened))


def _prism_head_dims(uniform: HeadSchedule) -> list[int]:
    base, width = uniform.base_head_dim, uniform.d_model
    powers = [2**k for k in range(1, WIDEST_HEAD_DIM.bit_length())]
    dims = {k for k in powers if base < k <= 4 * base and width % k == 0}
    between = 3 * base // 2
    if dims and base % 4 == 0 and between < max(dims) and width % between == 0:
        dims.add(between)
    return sorted(dims, reverse=True)


def _no_widening(uniform: HeadSchedule) -> str:
    base, width = uniform.base_head_dim, uniform.d_model
    widest = min(4 * base, WIDEST_HEAD_DIM)
    reason = f"prism widens to powers of two, and none from {base + 1} to {widest} divides d_model={width}"
    if base >= WIDEST_HEAD_DIM:
        reason = f"the base's head dim {base} is already at the limit of {WIDEST_HEAD_DIM}"
    others = [h for h in divisors(width) if _prism_head_dims(HeadSchedule([h], d_model=width))]
    near = sorted(sorted(others, key=lambda h: (abs(h - uniform.base_heads), h))[:2])
    remedies = [f"take {' or '.join(map(str, near))} base heads"] if near else []
    if len(legal := wide_heads(uniform)) > 1:
        remedies.append(f"use linear, or write a schedule from {', '.join(map(str, legal))} heads")
    return f"no legal widening: {reason}; {'; or '.join(remedies) or 'take another d_model'}"


def _reversed(uniform: HeadSchedule) -> HeadSchedule:
    return _same(uniform, _prism(uniform).heads[::-1])


def _linear(uniform: HeadSchedule) -> HeadSchedule:
    """Head counts on a straight line from the widest legal (layer 0) to the base's (last layer).

    Each is rounded to the nearest count of `wide_heads`, ties to the wider head. Monotone, since rounding is.
    """
    legal, steps = wide_heads(uniform), uniform.n_layers - 1
    if len(legal) == 1 or steps == 0:
        reason = "one layer is no line" if steps == 0 else "no wider head dim divides d_model"
        raise ScheduleError(f"no linear schedule for {uniform.n_layers} layers of {uniform.base_heads} heads: {reason}")
    first, rise = legal[0], uniform.base_heads - legal[0]
    # times `steps`, so that the comparison is exact in integers
    wanted = [first * steps + rise * layer for layer in range(uniform.n_layers)]
    return _same(uniform, [min(legal, key=lambda h: (abs(h * steps - target), h)) for target in wanted])


def _shuffled(uniform: HeadSchedule, number: int) -> HeadSchedule:
    """The `number`-th (from 0) of a fixed sequence of distinct random orders, prism's and its reverse left out.

    The same on every machine and Python version: the t-th order sorts prism's layers by the SHA-256 of the ASCII text
    "shuffled t layer"; orders that give an arrangement seen before are passed over. So no two numbers are equal.
    """
    prism = _prism(uniform).heads
    arrangements = math.factorial(len(prism))
    for repeats in Counter(prism).values():
        arrangements //= math.factorial(repeats)
    if number >= min(arrangements - 2, MAX_SHUFFLE + 1):
        last = min(arrangements - 3, MAX_SHUFFLE)
        remedy = f"0 to {last} exist" if last >= 0 else "these layers have no order besides prism's and its reverse"
        raise ScheduleError(f"there is no shuffled-{number}: {remedy}")
    seen = {prism, prism[::-1]}
    for heads in _random_orders(prism):
        if heads not in seen:
            seen.add(heads)
            if len(seen) == number + 3:
                break
    return _same(uniform, heads)


def _random_orders(heads: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    turn = 0
    while True:
        keys = [hashlib.sha256(f"shuffled {turn} {layer}".encode("ascii")).digest() for layer in range(len(heads))]
        yield tuple(heads[layer] for layer in sorted(range(len(heads)), key=keys.__getitem__))
        turn += 1


def _same(uniform: HeadSchedule, heads: list[int] | tuple[int, ...]) -> HeadSchedule:
    return HeadSchedule(heads, d_model=uniform.d_model)


_BY_RULE = {"uniform": lambda uniform: uniform, "prism": _prism, "reversed": _reversed, "linear": _linear}
