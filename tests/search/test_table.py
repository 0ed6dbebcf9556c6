"""The result of a search on a terminal."""

from typing import Any

from rich.console import Console

from prism_transformer.search.table import terminal_table


def row(name: str, place: int) -> dict[str, Any]:
    return {
        "name": name, "in_space": True, "loss": 3 + place / 100, "mean": place / 100, "low": None, "high": None,
        "tokens": 1000, "seeds": 2, "dropped": None,
    }  # fmt: skip


def in_terminal(names: list[str]) -> str:
    results = {
        "ranking": [row(name, place) for place, name in enumerate(names)],
        "baseline": "uniform", "set": [], "drops_from": None, "confidence": 0.95, "final": None, "verdict": [],
        "cost": {"runs": 1, "taken_up": 0, "tokens": 1, "seconds": 1.0, "workers": 1},
    }  # fmt: skip
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(terminal_table(results))
    return captured.get()


def test_those_that_are_not_shown_are_counted() -> None:
    """Twelve rows, and the references below them."""
    first = [f"1x{k},4x1" for k in range(1, 13)]
    text = in_terminal([*first, "uniform", "prism"])
    assert "prism" in text and "more in results.json" not in text
    assert "2 more in results.json." in in_terminal([*first, "a", "uniform", "b", "prism"])
