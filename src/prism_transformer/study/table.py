"""The result of a study on a terminal: one row an arm, then its calibration and the verdict."""

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..wording import listed
from .wording import level, plain, signed, speed_caveat

DECISIONS = {
    "lower": ("lower", "green"),
    "higher": ("higher", "red"),
    "equivalent": ("equivalent", "cyan"),
    "cannot_tell": ("cannot tell", "yellow"),
}
WIDE, NARROW = 100, 76
"""columns from which a difference and its interval stand on one line, and below which they need three"""


def terminal_table(results: Mapping[str, Any], width: int = 80) -> RenderableType:
    """The table, its notes and the verdict; fits `width` columns from 60 on."""
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    is_narrow = width < NARROW
    table.add_column("arm", overflow="fold", max_width=_arm_width(width))
    table.add_column("heads", no_wrap=True)
    table.add_column("val loss", justify="right", no_wrap=True)
    table.add_column(f"minus{chr(10) if is_narrow else ' '}{results['baseline']}", justify="right", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column("decision", no_wrap=not is_narrow)
    for name, arm in results["arms"].items():
        table.add_row(*_row(name, arm, results, width))
    return Group(table, Text(_wrapped(_legend(results), width), style="dim"), *_closing(results, width))


def _arm_width(width: int) -> int:
    return 10 if width < NARROW else width // 5


def _row(name: str, arm: Mapping[str, Any], results: Mapping[str, Any], width: int) -> list[str | Text]:
    entry = results["differences"].get(name)
    if len(name) > (limit := _arm_width(width)):
        parts = re.split("(?=[@=])", name)
        name = "\n".join(part if len(part) < limit else part.replace("_", "\n_") for part in parts)
    loss = plain(arm["mean"])
    if arm["sd"] is not None:
        loss += f"{' ' if width >= WIDE else chr(10)}± {plain(arm['sd'])}"
    speed = "–" if arm["relative_speed"] is None else f"×{arm['relative_speed']:.2f}"
    heads = _folded(arm["schedule"], 8 if width < NARROW else 11) or "–"
    if entry is None:
        return [name, heads, loss, "baseline", f"{arm['n']}/{results['endpoint']['planned_seeds']}", speed, ""]
    word, style = DECISIONS[entry["decision"]]
    pairs = f"{entry['n']}/{entry['planned']}"
    return [name, heads, loss, _difference(entry, width), pairs, speed, Text(word, style)]


def _folded(schedule: str, width: int) -> str:
    """A schedule over as many lines as its column needs, broken between its phases."""
    lines = [""]
    for phase in schedule.split(","):
        if lines[-1] and len(lines[-1]) + len(phase) > width:
            lines.append("")
        lines[-1] += f"{phase},"
    return "\n".join(lines).removesuffix(",")


def _difference(entry: Mapping[str, Any], width: int) -> str:
    mean = signed(entry["mean"])
    if entry["low"] is None:
        return mean
    low, high = signed(entry["low"]), signed(entry["high"])
    if width < NARROW:
        return f"{mean}\n[{low},\n{high}]"
    return f"{mean}{' ' if width >= WIDE else chr(10)}[{low}, {high}]"


def _legend(results: Mapping[str, Any]) -> str:
    entries = results["differences"]
    confidence = next((entry["confidence"] for entry in entries.values()), results["endpoint"]["confidence"])
    sentences = [
        "Validation loss in nats per token, mean ± sd over seeds; "
        f"paired difference with its {level(confidence)} interval, negative is better; pairs used/planned; "
        f"speed in tokens/s relative to {results['baseline']}."
    ]
    reasons: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if entry["reason"] and entry["low"] is not None:
            reasons.setdefault(entry["reason"], []).append(name)
    sentences += [f"{listed(names)}: {reason}." for reason, names in reasons.items()]
    caveat = speed_caveat(results)
    sentences += _beside(results["primary"], entries.get(results["primary"]), speeds_count=not caveat)
    sentences += _to_others(results)
    return "\n".join([*sentences, *filter(None, [caveat])])


def _beside(name: str, entry: Mapping[str, Any] | None, *, speeds_count: bool) -> list[str]:
    """For the primary arm: what pairing bought, and the difference at equal time where speeds mean something."""
    sentences = []
    if entry and entry["unpaired"] and entry["correlation"] is not None:
        low, high = signed(entry["unpaired"]["low"]), signed(entry["unpaired"]["high"])
        sentences.append(
            f"Pairing: correlation {plain(entry['correlation'], 2)} over seeds; without it {name}'s interval would be "
            f"[{low}, {high}]."
        )
    if entry and entry["equal_time"] and speeds_count:
        time = " ".join(_difference(entry["equal_time"], WIDE).split("\n"))
        sentences.append(f"At equal time on this device (an estimate, not the verdict): {name} {time}.")
    return sentences


def _to_others(results: Mapping[str, Any]) -> list[str]:
    """The primary arm beside the other schedules that are not uniform: what its order does, or a setting."""
    told = [
        f"{name} {_difference(entry, WIDE)} {DECISIONS[entry['decision']][0]}"
        for name, entry in results["others"].items()
        if entry["low"] is not None
    ]
    return [f"{results['primary']} minus other schedules: {'; '.join(told)}."] if told else []


def _closing(results: Mapping[str, Any], width: int) -> list[Text]:
    texts = []
    if results["calibration"]:
        texts.append(Text("\n" + _wrapped(f"Calibration: {results['calibration']['text']}", width)))
    style = DECISIONS[results["verdict"]["decision"]][1]
    verdict = Text("\n" + _wrapped(f"Verdict: {results['verdict']['text']}", width))
    verdict.stylize(f"bold {style}", 1, len("\nVerdict:"))
    return [*texts, verdict]


def _wrapped(text: str, width: int) -> str:
    """Lines of at most `width` columns, none of them between a number and its % sign.

    Wrapped here since rich breaks a line at a no-break space too.
    """
    whole = re.sub(r"(?<=\d) %", "\u00a0%", text)
    lines = (textwrap.fill(line, width, break_on_hyphens=False) for line in whole.split("\n"))
    return "\n".join(lines).replace("\u00a0", " ")
