"""The head schedule: how many attention heads each layer has.

A schedule for a decoder of L layers and width d_model is S = (h_1 … h_L) with head dims d_model / h_l
(arXiv 2606.27449, section 3). This file is exported beside a model's weights, so it needs nothing but the standard
library.
"""

import hashlib
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any, Literal, NamedTuple

MAX_LAYERS = 1024
"""The deepest transformers trained so far have about 1000 layers; more is a slip of the keyboard."""

MAX_D_MODEL = 2**20
"""Fifty times the widest model published; keeps the search for divisors instant."""

_ITEM = re.compile(r"0*(?P<heads>[0-9]+)(?:\s*[x×*]\s*0*(?P<layers>[0-9]+))?", re.IGNORECASE | re.ASCII)
_MAX_DIGITS = 9


class ScheduleError(ValueError):
    """A head schedule that cannot exist. Holds every problem found: `problems`, and one a line in the message."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class RuleResult(NamedTuple):
    """What one rule says about a schedule."""

    name: str
    outcome: Literal["pass", "warn", "fail"]
    sentence: str


class LayerDifference(NamedTuple):
    """A layer whose head count differs between two schedules; None where one of them has no such layer."""

    layer: int
    heads: int | None
    other_heads: int | None


@dataclass(frozen=True, init=False, repr=False)
class HeadSchedule:
    """Heads per layer of a model of width `d_model`: immutable, hashable, equal when heads and width are equal.

    The constructor holds what every layer needs to exist at all: a positive integer number of heads that divides
    `d_model`. The paper's two rules about the order of layers (monotonicity, boundary) are checks, because a control
    such as the reversed schedule breaks them on purpose. So is the even head dim: the definition allows an odd one,
    only the rotary embedding of this package's model does not, and the model's configuration refuses it.
    """

    heads: tuple[int, ...]
    d_model: int

    def __init__(self, heads: Sequence[int], *, d_model: int) -> None:
        """Raise `ScheduleError` with every problem when a layer's heads are no positive divisor of `d_model`."""
        width = _width(d_model)
        _refuse_many(len(heads))
        problems = ["a schedule needs at least one layer"] if len(heads) == 0 else []
        counts: list[int] = []
        for layer, value in enumerate(heads):
            count = _integer(value)
            if count is None or count < 1:
                problems.append(f"heads[{layer}]={_quote(value)} is not a positive integer")
            counts.append(count or 0)
        problems += _divisibility_problems(counts, width)
        if problems:
            raise ScheduleError(problems)
        object.__setattr__(self, "heads", tuple(counts))
        object.__setattr__(self, "d_model", width)

    @classmethod
    def parse(cls, text: str | Sequence[Any], *, d_model: int, n_layers: int | None = None) -> "HeadSchedule":
        """Read a schedule from a list or a text of "heads x layers" items.

        "3x2,6x2,8x2,12x6", "3,3,6,6,8,8,12*6", [3, 3, 6] and ["3x2", 6] (as YAML gives them) are all understood.
        With `n_layers`, any other number of layers is refused. Raises `ScheduleError`.
        """
        heads = _expand(text)
        problems = []
        if heads and n_layers is not None and len(heads) != n_layers:
            problems.append(_length_problem(len(heads), n_layers))
        try:
            schedule = cls(heads, d_model=d_model)
        except ScheduleError as error:
            raise ScheduleError([*problems, *error.problems]) from None
        if problems:
            raise ScheduleError(problems)
        return schedule

    @property
    def n_layers(self) -> int:
        return len(self.heads)

    @property
    def head_dims(self) -> tuple[int, ...]:
        """d_model / h_l of each layer."""
        return tuple(self.d_model // count for count in self.heads)

    @property
    def is_uniform(self) -> bool:
        return len(set(self.heads)) == 1

    @property
    def base_heads(self) -> int:
        """The largest head count; h_L of a schedule that keeps the paper's rules."""
        return max(self.heads)

    @property
    def base_head_dim(self) -> int:
        return self.d_model // self.base_heads

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """(heads, layers) of each run of equal neighbours, first layer first."""
        return _phases(self.heads)

    @property
    def fingerprint(self) -> str:
        """Identity of (heads, d_model), the same on every machine and in every version.

        SHA-256, in hex, of the ASCII text "head-schedule/1 d_model=768 heads=3,3,6,6": the width and the
        heads of each layer in decimal. Weights trained with one schedule load into a model of any other of that width,
        so this is what tells them apart.
        """
        text = f"head-schedule/1 d_model={self.d_model} heads={','.join(map(str, self.heads))}"
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def __str__(self) -> str:
        """Canonical text, as `schedule_text` gives it."""
        return schedule_text(self.heads)

    def __repr__(self) -> str:
        return f"HeadSchedule.parse({str(self)!r}, d_model={self.d_model})"

    def check(self, *, base_heads: int | None = None) -> list[RuleResult]:
        """The hard rules by name: divisibility, monotonicity, boundary (paper, section 3) and even-head-dim (RoPE).

        `base_heads` is h_base of the uniform model that the schedule is measured against; by default its own maximum.
        """
        base = self.base_heads if base_heads is None else base_heads
        return [
            RuleResult("divisibility", "pass", f"every head count divides d_model={self.d_model}"),
            self._check_monotonicity(),
            self._check_boundary(base),
            self._check_even_head_dim(),
        ]

    def diff(self, other: "HeadSchedule") -> tuple[LayerDifference, ...]:
        """The layers whose head count differs. Raises `ScheduleError` when the widths differ: nothing compares then."""
        if self.d_model != other.d_model:
            raise ScheduleError(
                f"d_model={self.d_model} and d_model={other.d_model}: no layer of the two is comparable"
            )
        pairs = enumerate(zip_longest(self.heads, other.heads))
        return tuple(LayerDifference(layer, mine, theirs) for layer, (mine, theirs) in pairs if mine != theirs)

    def _check_monotonicity(self) -> RuleResult:
        for layer in range(1, self.n_layers):
            before, after = self.heads[layer - 1 : layer + 1]
            if after < before:
                sentence = f"heads fall from {before} to {after} at layer {layer}; they may only stay or rise"
                return RuleResult("monotonicity", "fail", sentence)
        return RuleResult("monotonicity", "pass", "heads never fall from one layer to the next")

    def _check_boundary(self, base: int) -> RuleResult:
        last = self.heads[-1]
        if last != base:
            return RuleResult("boundary", "fail", f"the last layer has {last} heads; it should have the base's {base}")
        return RuleResult("boundary", "pass", f"the last layer has the base's {base} heads")

    def _check_even_head_dim(self) -> RuleResult:
        odd = [layer for layer, dim in enumerate(self.head_dims) if dim % 2]
        if odd:
            layer = odd[0]
            sentence = f"head dim {self.head_dims[layer]} of layer {layer} is odd: RoPE rotates pairs and cannot use it"
            return RuleResult("even-head-dim", "fail", sentence)
        return RuleResult("even-head-dim", "pass", "every head dim is even, as RoPE needs")


def schedule_text(heads: Sequence[int]) -> str:
    """Canonical text: "3x2,6x2,8x2,12x6", heads x layers, equal neighbours merged; no layers give ""."""
    return ",".join(f"{count}x{layers}" for count, layers in _phases(heads))


def _phases(heads: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((count, len(list(run))) for count, run in groupby(heads))


def divisors(n: int) -> list[int]:
    """The positive divisors of `n`, ascending."""
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def _integer(value: object) -> int | None:
    """An int (NumPy's included) as int; None for anything else, bool and float included: 3.0 heads hides a slip."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _width(d_model: object) -> int:
    width = _integer(d_model)
    if width is None or not 1 <= width <= MAX_D_MODEL:
        raise ScheduleError(f"d_model={_quote(d_model)} is not an integer from 1 to {MAX_D_MODEL}")
    return width


def _divisibility_problems(counts: list[int], width: int) -> list[str]:
    problems = []
    layer = 0
    for count, run in groupby(counts):
        last = layer + len(list(run)) - 1
        if count > 0 and width % count:
            where = f"heads[{layer}]" if layer == last else f"heads[{layer}..{last}]"
            legal = divisors(width)
            below = [str(k) for k in legal if k < count][-1:]
            above = [str(k) for k in legal if k > count][:1]
            remedy = f"nearest that do: {', '.join(below + above)}" if above else f"the largest that does: {below[0]}"
            problems.append(f"{where}={_quote(count)} does not divide d_model={width}; {remedy}")
        layer = last + 1
    return problems


def _expand(source: str | Sequence[Any]) -> list[Any]:
    """The heads of each layer, counted before they are laid out, so that no typing slip fills the memory."""
    if isinstance(source, str):
        text = source.strip()
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1]
        items: list[Any] = text.split(",") if text.strip() else []
    elif isinstance(source, Sequence) and not isinstance(source, bytes):
        _refuse_many(len(source))
        items = list(source)
    else:
        raise ScheduleError(f"{_quote(source)} is no schedule; give a list of heads or a text like 3x2,6x2,8x2,12x6")
    _refuse_many(len(items))
    problems: list[str] = []
    runs = [_read_item(item, problems) for item in items]
    if problems:
        raise ScheduleError(problems)
    _refuse_many(sum(layers for _, layers in runs))
    return [count for count, layers in runs for _ in range(layers)]


def _read_item(item: object, problems: list[str]) -> tuple[object, int]:
    """(heads, layers) of one item of a schedule; what is wrong with it goes to `problems`."""
    if not isinstance(item, str):
        return item, 1
    match = _ITEM.fullmatch(item.strip())
    if match is None:
        problems.append(f"{_quote(item.strip())} is neither heads (12) nor heads x layers (12x6)")
        return 0, 0
    heads, layers = match["heads"], match["layers"] or "1"
    if len(heads) > _MAX_DIGITS or len(layers) > _MAX_DIGITS:
        problems.append(f"{_quote(item.strip())} is out of range: at most {MAX_D_MODEL} heads and {MAX_LAYERS} layers")
        return 0, 0
    if int(layers) == 0:
        problems.append(f"{_quote(item.strip())} gives these heads to no layer; leave it out")
    return int(heads), int(layers)


def _refuse_many(n_layers: int) -> None:
    if n_layers > MAX_LAYERS:
        raise ScheduleError(
            f"{n_layers} layers are more than a schedule holds ({MAX_LAYERS}); items are heads x layers"
        )


def _length_problem(found: int, wanted: int) -> str:
    missing = wanted - found
    change = f"give {missing} more" if missing > 0 else f"leave out {-missing}"
    counts = "head count" if found == 1 else "head counts"
    return f"{found} {counts} for {wanted} layers; {change}, or set the number of layers to {found}"


def _quote(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**_MAX_DIGITS else "a number beyond any reason"
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
