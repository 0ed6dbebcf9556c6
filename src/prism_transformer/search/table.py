"""The result of a search on a terminal of 80 columns."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..study.estimate import duration
from ..study.table import DECISIONS
from ..study.wording import level, plain, signed
from ..wording import count

ROWS = 12
"""of the ranking that are shown; results.json has all of them"""


def terminal_table(results: Mapping[str, Any]) -> RenderableType:
    """The ranking, the final comparison, the verdict and the cost."""
    parts: list[RenderableType] = [_ranking(results), Text(_legend(results), style="dim")]
    if results["final"] and results["final"]["differences"]:
        parts += [Text("\nFinal comparison: test split, fresh seeds", style="bold"), _final(results)]
    parts += [Text(), *(Text(sentence) for sentence in results["verdict"]), Text(_cost(results), style="dim")]
    return Group(*parts)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    for k, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="left" if k == 0 else "right", no_wrap=k > 0)
    return table


def _ranking(results: Mapping[str, Any]) -> Table:
    table = _table("schedule", "loss", "minus uniform", "tokens", "seeds", "")
    for row in _shown(results):
        table.add_row(
            row["name"] if row["in_space"] else f"{row['name']} *",
            plain(row["loss"]),
            "–" if row["name"] == results["baseline"] else _difference(row),
            _millions(row["tokens"]),
            str(row["seeds"]),
            _status(row, results),
        )
    return table


def _shown(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The first rows of the ranking, and uniform and prism wherever they stand."""
    rows = results["ranking"]
    return [*rows[:ROWS], *(row for row in rows[ROWS:] if row["name"] in ("uniform", "prism"))]


def _difference(entry: Mapping[str, Any]) -> str:
    if entry["low"] is None:
        return signed(entry["mean"])
    return f"{signed(entry['mean'])} [{signed(entry['low'])}, {signed(entry['high'])}]"


def _status(row: Mapping[str, Any], results: Mapping[str, Any]) -> Text:
    if row["name"] in results["set"]:
        return Text("best set", "green")
    if row["dropped"]:
        return Text("diverged" if row["dropped"].startswith("diverged") else "worse", "red")
    return Text("baseline" if row["name"] == results["baseline"] else "")


def _legend(results: Mapping[str, Any]) -> str:
    more = len(results["ranking"]) - len(_shown(results))
    lines = [
        f"Validation loss in nats per token; difference to uniform with a {level(results['confidence'])} interval (all "
        "of a round hold together), negative is better. A schedule stands where its last round has put it."
    ]
    if results["drops_from"]:
        lines.append(
            f"The last round dropped what lay more than about {plain(results['drops_from'])} nats behind the best; "
            "what is closer cannot be told from it."
        )
    if any(not row["in_space"] for row in results["ranking"]):
        lines.append("* a reference outside of the constraints: measured, never chosen.")
    if more > 0:
        lines.append(f"{more} more in results.json.")
    return "\n".join(lines)


def _final(results: Mapping[str, Any]) -> Table:
    table = _table("schedule", "minus uniform", "pairs", "decision")
    for name, entry in results["final"]["differences"].items():
        word, style = DECISIONS[entry["decision"]]
        table.add_row(name, _difference(entry), f"{entry['n']}/{entry['planned']}", Text(word, style))
    return table


def _cost(results: Mapping[str, Any]) -> str:
    cost = results["cost"]
    runs = count(cost["runs"], "run") + (f", {cost['taken_up']} taken up again" if cost["taken_up"] else "")
    workers = count(cost["workers"], "worker")
    return f"cost: {runs}, {cost['tokens']:,} tokens of training, {duration(cost['seconds'])} by {workers}"


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:.2f}M" if tokens >= 1e6 else f"{tokens / 1e3:.0f}k"
