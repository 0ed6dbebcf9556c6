"""One schedule as `prism schedule` prints it: heads, staircase, rules, and its cost beside the uniform model's."""

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..cost import Cost, default_intermediate_size, model_cost, short
from ..design.drawing import staircase_text
from ..errors import InputError
from ..model.head_schedule import HeadSchedule, RuleResult, ScheduleError

COLUMNS = 80
_ASCII = str.maketrans({"█": "#", "▌": "|", "░": ":", "×": "x", "–": "-"})
_COLORS = {"pass": "32", "warn": "33", "fail": "31"}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A schedule's cost and that of the uniform schedule it is measured against."""

    schedule: HeadSchedule
    uniform: HeadSchedule
    context: int
    vocab_size: int

    @classmethod
    def with_uniform(
        cls, schedule: HeadSchedule, *, base_heads: int | None, context: int, vocab_size: int
    ) -> "Comparison":
        base = base_heads or schedule.base_heads
        try:
            uniform = HeadSchedule([base] * schedule.n_layers, d_model=schedule.d_model)
        except ScheduleError as error:
            raise InputError([f"base heads: {problem}" for problem in error.problems]) from None
        return cls(schedule=schedule, uniform=uniform, context=context, vocab_size=vocab_size)

    @property
    def intermediate_size(self) -> int:
        return default_intermediate_size(self.schedule.d_model)

    def figures(self, schedule: HeadSchedule) -> dict[str, int]:
        cost: Cost = model_cost(
            schedule, vocab_size=self.vocab_size, context=self.context, intermediate_size=self.intermediate_size
        )
        return {
            "parameters": cost.parameters,
            "matmul_flops_per_token": cost.matmul_flops_per_token,
            "softmax_entries": cost.softmax_entries,
            "kv_cache_bytes": cost.kv_cache_bytes,
        }


def card_data(compared: Comparison, rules: Sequence[RuleResult]) -> dict[str, Any]:
    """The card for --json: exact figures."""
    schedule = compared.schedule
    return {
        "schedule": str(schedule),
        "heads": schedule.heads,
        "head_dims": schedule.head_dims,
        "d_model": schedule.d_model,
        "fingerprint": schedule.fingerprint,
        "rules": [rule._asdict() for rule in rules],
        "context": compared.context,
        "vocab_size": compared.vocab_size,
        "intermediate_size": compared.intermediate_size,
        "cost": compared.figures(schedule),
        "uniform": {"heads": compared.uniform.heads[0], "cost": compared.figures(compared.uniform)},
    }


def card_lines(compared: Comparison, rules: Sequence[RuleResult]) -> list[str]:
    """The card for a terminal of 80 columns."""
    lines = [*wrap("", breakable(compared.schedule)), "", *staircase_text(compared.schedule), ""]
    for rule in rules:
        lines += _painted(rule.outcome, wrap(f"{rule.outcome}  {rule.name:<15}  ", rule.sentence))
    return [*lines, "", *_cost_table(compared)]


def _cost_table(compared: Comparison) -> list[str]:
    names = ("parameters", "matrix FLOPs a token, forward", "softmax entries a sequence", "KV cache a sequence, bytes")
    other = f"uniform {compared.uniform.heads[0]}"
    figures = zip(
        names, compared.figures(compared.schedule).values(), compared.figures(compared.uniform).values(), strict=True
    )
    lines = [f"{'':<30}{'this':>12}{other:>16}{'ratio':>9}"]
    lines += [f"{name:<30}{short(a):>12}{short(b):>16}{a / b:>9.3f}" for name, a, b in figures]
    sizes = f"vocabulary {compared.vocab_size}, context {compared.context}, SwiGLU hidden {compared.intermediate_size}"
    return [*lines, *wrap("", f"({sizes}, tied embedding, bf16 cache; attention counted in full)")]


def breakable(schedule: HeadSchedule) -> str:
    """The canonical text, with spaces to break at where it is long; it parses either way."""
    text = str(schedule)
    return text if len(text) <= 50 else text.replace(",", ", ")


def wrap(label: str, text: str) -> list[str]:
    """Lines of at most 80 columns: `text` beside its label, continued under its own beginning."""
    indent = " " * len(label)
    return textwrap.wrap(text, COLUMNS, initial_indent=label, subsequent_indent=indent, break_on_hyphens=False)


def print_lines(lines: Iterable[str]) -> None:
    """Print, in ASCII where the terminal's encoding has no block characters."""
    text = "\n".join(lines)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    print(text)


def print_json(data: dict[str, Any]) -> None:
    """Print on one line."""
    print(json.dumps(data))


def _painted(outcome: str, lines: list[str]) -> list[str]:
    """The outcome in colour where the output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return lines
    return [f"\x1b[{_COLORS[outcome]}m{outcome}\x1b[0m{lines[0][len(outcome) :]}", *lines[1:]]
