"""The picture of a search: how much wider the heads of each schedule are, against what it gains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..study.figures import LIGHT, PAPER, SERIES, save_figure, styled
from ..study.wording import level
from .candidates import SHAPES

MARKS = ("o", "D", "^", "s", "P", "X", "v")
NAME = "space"
APART = 0.012
"""of the axis between two schedules that are equally wide"""

Rows = Sequence[Mapping[str, Any]]


def draw_space(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write space.svg and space.png; filled marks are the schedules that cannot be told from the best.

    Each stands where its last round has put it, with the interval of the difference to uniform.
    """
    rows = [row for row in results["ranking"] if row["mean"] is not None]
    colours = {family: LIGHT[SERIES[k]] for k, family in enumerate(SHAPES)}
    with mpl.rc_context(styled(LIGHT)):
        figure = Figure(figsize=(7.2, 4.8), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(0, color=LIGHT[SERIES[0]], lw=1)
        places = _places(rows)
        for mark, family in zip(MARKS, SHAPES, strict=True):
            of_family = [row for row in rows if row["family"] == family]
            if of_family:
                _scatter(axes, of_family, places, set(results["set"]), colours[family], mark, family)
        _label(axes, rows, places, _named(results))
        axes.set_xlabel("widening: part of the heads that the schedule does without")
        axes.set_ylabel("gain over uniform, nats per token (up is better)")
        axes.set_title(_title(results), fontsize="medium", loc="left")
        figure.legend(loc="outside lower center", ncols=4, fontsize=9)
        return save_figure(figure, folder / NAME)


def _places(rows: Rows) -> dict[str, float]:
    """Where each schedule stands from left to right; those that are equally wide stand beside each other."""
    alike: dict[float, list[str]] = {}
    for row in rows:
        alike.setdefault(round(float(row["widening"]), 6), []).append(row["name"])
    return {
        name: at + APART * (k - (len(names) - 1) / 2) for at, names in alike.items() for k, name in enumerate(names)
    }


def _scatter(
    axes: Axes, rows: Rows, places: Mapping[str, float], in_set: set[str], colour: str, mark: str, label: str
) -> None:
    for row in rows:
        at, gain = places[row["name"]], -row["mean"]
        if row["low"] is not None:
            axes.plot([at, at], [-row["high"], -row["low"]], color=colour, lw=0.8, alpha=0.35, zorder=1)
        face = colour if row["name"] in in_set else "none"
        axes.plot(at, gain, mark, mfc=face, mec=colour, mew=1.2, ms=6.5, zorder=2, ls="none")
    axes.plot([], [], mark, color=colour, label=label, ls="none")


def _named(results: Mapping[str, Any]) -> list[str]:
    """The schedules that carry their name: few, so that the names can be read."""
    names = [results["recommended"], results["chosen"], results["winner"], results["baseline"], "prism"]
    return [name for name in dict.fromkeys(names) if name]


def _label(axes: Axes, rows: Rows, places: Mapping[str, float], names: Sequence[str]) -> None:
    """Names above and below in turn, from left to right, so that neighbours do not cover each other."""
    named = sorted((row for row in rows if row["name"] in names), key=lambda row: places[row["name"]])
    for k, row in enumerate(named):
        axes.annotate(
            row["name"],
            (places[row["name"]], -row["mean"]),
            xytext=(0, 10 if k % 2 == 0 else -18),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            bbox={"facecolor": LIGHT[PAPER], "edgecolor": "none", "alpha": 0.75, "pad": 1},
        )


def _title(results: Mapping[str, Any]) -> str:
    return (
        f"filled: cannot be told from the best; bars: {level(results['confidence'])} intervals, all of a round at once"
    )
