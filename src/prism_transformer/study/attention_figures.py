"""The paper's two pictures of attention distance: D_l by layer for each arm, and bars of its difference."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .figures import INK, WIDTH, Palette, plot_for, series_style, styled


def _styles(found: Mapping[str, Any], palette: Palette) -> dict[str, tuple[str, Any]]:
    others = [name for name in found["arms"] if name != found["baseline"]]
    return series_style([found["baseline"], *others], palette)


def distance_curves(found: Mapping[str, Any], palette: Palette) -> Figure:
    """D_l against the layer, mean over seeds, with one point a seed."""
    styles = _styles(found, palette)
    with mpl.rc_context(styled(palette)):
        figure, axes = plot_for(len(found["arms"]))
        for name, (colour, dashes) in styles.items():
            layers = found["arms"][name]["layers"]
            numbers = range(1, len(layers) + 1)
            means = [layer["distance"]["mean"] for layer in layers]
            axes.plot(numbers, means, color=colour, ls=dashes, lw=1.8, marker="o", ms=3.5, label=name)
            for number, layer in zip(numbers, layers, strict=True):
                values = layer["distance"]["per_seed"]
                axes.plot([number] * len(values), values, ".", color=colour, ms=3, alpha=0.5)
        axes.set_ylabel("attention distance, tokens")
        _finish(figure, axes)
    return figure


def difference_bars(found: Mapping[str, Any], palette: Palette) -> Figure:
    """The difference to the baseline in each layer with its interval, a panel an arm."""
    styles = _styles(found, palette)
    names = list(found["differences"])
    with mpl.rc_context(styled(palette)):
        figure = Figure(figsize=(WIDTH, 0.6 + 1.9 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=True):
            _bars(axes, found["differences"][name]["layers"], styles[name][0], palette.get(INK, INK))
            axes.set_title(f"{name} minus {found['baseline']}", loc="left", fontsize="medium")
        panels[-1].set_xlabel("layer")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.supylabel("difference, tokens", fontsize="medium")
    return figure


def _bars(axes: Axes, layers: list[Mapping[str, Any]], colour: str, ink: str) -> None:
    axes.axhline(0, color=ink, lw=1)
    for number, layer in enumerate(layers, start=1):
        entry = layer["distance"]
        if entry["mean"] is None:
            continue
        axes.bar(number, entry["mean"], color=colour, alpha=0.55, width=0.7)
        if entry["low"] is not None:
            axes.plot([number, number], [entry["low"], entry["high"]], color=ink, lw=1.4, solid_capstyle="butt")
    axes.grid(axis="x", visible=False)


def _finish(figure: Figure, axes: Axes) -> None:
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside upper left", ncols=2, handlelength=2.6)
