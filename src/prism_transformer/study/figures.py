"""A study's pictures: drawn once, for the report's page and for files.

On the page a picture takes its colours from it: Matplotlib draws with placeholder colours, and `page_svg` turns them
into the page's CSS variables, so that one picture serves light and dark. The series colours are Okabe and Ito's, which
people with any colour vision tell apart; each series also has its own dashes.
"""

import html
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..model.head_schedule import schedule_text

FIGURES = "figures"
"""The folder of a study's pictures as files."""

INK, FAINT, PAPER = "#0000f1", "#0000f2", "#0000f3"
SERIES = tuple(f"#0000c{k}" for k in range(8))
"""the first is the baseline's"""
DASHES: tuple[Any, ...] = (
    "-",
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.5)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 3)),
    (0, (8, 2)),
    (0, (1, 3)),
)

WIDTH = 5.4
"""inches; shown at the width of a phone its text is still 10 pixels high"""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "axes.formatter.useoffset": False,
}


Palette = Mapping[str, str]
"""What the placeholder colours become; an empty one leaves them for `page_svg`."""

LIGHT: Palette = {
    INK: "#1c1e21",
    FAINT: "#8a9099",
    PAPER: "#ffffff",
    **dict(
        zip(
            SERIES,
            ("#3b3f45", "#0072b2", "#d55e00", "#009e73", "#b0568f", "#b07d00", "#3f93c6", "#7a6a53"),
            strict=True,
        )
    ),
}
"""The page's light colours, for pictures that stand alone."""


def styled(palette: Palette) -> dict[Any, Any]:
    """The house style in the colours of a palette."""
    return {key: palette.get(value, value) if isinstance(value, str) else value for key, value in STYLE.items()}


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure drawn in the palette LIGHT as `path`.svg and `path`.png, on white; returns both."""
    written = []
    with mpl.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "path"}):
        for suffix, options in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 200})):
            figure.savefig(path.with_suffix(suffix), facecolor=LIGHT[PAPER], **options)
            written.append(path.with_suffix(suffix))
    return written


def series_style(names: Sequence[str], palette: Palette) -> dict[str, tuple[str, Any]]:
    """name -> (colour, dashes), the same in every picture; `names` has the baseline first.

    Beyond eight arms a colour comes again with other dashes.
    """
    size = len(SERIES)
    colours = [palette.get(colour, colour) for colour in SERIES]
    return {name: (colours[k % size], DASHES[(k + 3 * (k // size)) % size]) for k, name in enumerate(names)}


def study_figures(results: Mapping[str, Any], palette: Palette) -> dict[str, tuple[Figure, str]]:
    """name -> (picture, what it shows), of those that the results have something for.

    The calibrations, whose truth is known, have a picture of their own.
    """
    calibrations = [name for name, arm in results["arms"].items() if arm["role"].startswith("calibration")]
    others = [name for name in _ordered(results)[1:] if name not in calibrations]
    primary = [name for name in others if name == results["primary"]]
    drawn: dict[str, tuple[Figure | None, str]] = {}
    if primary:
        drawn["verdict"] = differences(results, primary, palette), "The verdict's difference and its interval"
    if calibrations:
        drawn["calibration"] = differences(results, calibrations, palette), "Calibration differences"
    if len(others) > 1:
        drawn["differences"] = differences(results, others, palette), "Differences of all arms"
    drawn["loss_curves"] = (
        loss_curves(results, [results["baseline"], *others], palette),
        "Validation loss against tokens for each arm",
    )
    drawn["difference_curves"] = (
        difference_curves(results, others, palette),
        f"Difference to {results['baseline']} against tokens",
    )
    return {name: (figure, label) for name, (figure, label) in drawn.items() if figure is not None}


def write_figures(folder: Path, results: Mapping[str, Any]) -> list[Path]:
    """Write the pictures into `folder`/figures as SVG and PNG, on white, over older ones; returns their paths."""
    place = folder / FIGURES
    place.mkdir(exist_ok=True)
    drawn = study_figures(results, LIGHT)
    return [path for name, (figure, _) in drawn.items() for path in save_figure(figure, place / name.replace("_", "-"))]


def _ordered(results: Mapping[str, Any]) -> list[str]:
    names = [name for name in results["arms"] if name != results["baseline"]]
    return [results["baseline"], *sorted(names, key=lambda name: name != results["primary"])]


def differences(results: Mapping[str, Any], names: Sequence[str], palette: Palette) -> Figure:
    """Each arm's paired difference with its interval and its seeds, in percent of the baseline's loss."""
    styles = series_style(_ordered(results), palette)
    margin = results["endpoint"]["equivalence"] * 100
    with mpl.rc_context(styled(palette)):
        figure = Figure(figsize=(WIDTH, 1.0 + 0.46 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvspan(-margin, margin, color=palette.get(FAINT, FAINT), alpha=0.25, lw=0)
        axes.axvline(0, color=palette.get(INK, INK), lw=1)
        for row, name in enumerate(names):
            _difference(axes, row, results["differences"][name], styles[name][0])
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        figure.supxlabel(f"loss minus {results['baseline']}'s, % of the loss (left is better)", fontsize="medium")
    return figure


def _difference(axes: Axes, row: int, entry: Mapping[str, Any], colour: str) -> None:
    if entry["mean"] is None:
        return
    scale = 100 / entry["baseline_mean"]
    seeds = [scale * value for value in entry["per_seed"].values()]
    axes.plot(seeds, [row + 0.24] * len(seeds), "|", color=colour, ms=7, mew=1.2, alpha=0.7)
    if entry["low"] is not None:
        axes.plot(
            [scale * entry["low"], scale * entry["high"]], [row, row], color=colour, lw=2.5, solid_capstyle="butt"
        )
    axes.plot(scale * entry["mean"], row, "o", color=colour, ms=7)


def _short(name: str) -> str:
    """A long arm name over two lines, so that it leaves room for the picture."""
    breaks = [k for k, letter in enumerate(name) if letter in " @"]
    if len(name) <= 16 or not breaks:
        return name
    half = min(breaks, key=lambda k: abs(k - len(name) / 2))
    return f"{name[:half]}\n{name[half:].lstrip()}"


def loss_curves(results: Mapping[str, Any], names: Sequence[str], palette: Palette) -> Figure | None:
    """Validation loss against tokens, mean over seeds with a band of one sd, from half of the tokens on.

    Where only the last evaluation read the whole split, it stands apart from the line.
    """
    curves = {name: results["curves"][name] for name in names if len(results["curves"][name]) > 1}
    if not curves:
        return None
    first = max(curve[-1]["tokens"] for curve in curves.values()) / 2
    styles = series_style(_ordered(results), palette)
    with mpl.rc_context(styled(palette)):
        figure, axes = plot_for(len(curves))
        for name, curve in curves.items():
            late = [point for point in curve if point["tokens"] >= first]
            points = [point for point in late if point["is_whole"] == late[0]["is_whole"]]
            band = [(p["mean"] - (p["sd"] or 0), p["mean"] + (p["sd"] or 0)) for p in points]
            _band(axes, name, styles[name], points, band)
            for end in late[len(points) :]:  # of the whole split, after a line of samples of it
                axes.plot(end["tokens"], end["mean"], "D", ms=4, color=styles[name][0], clip_on=False)
        axes.set_ylabel("validation loss, nats per token")
        _finish(figure, axes)
    return figure


def difference_curves(results: Mapping[str, Any], names: Sequence[str], palette: Palette) -> Figure | None:
    """The paired difference on the way, with the primary arm's pointwise interval; from half of the tokens on."""
    curves = {
        name: results["difference_curves"][name]
        for name in names
        if len(results["difference_curves"].get(name, ())) > 1
    }
    if not curves:
        return None
    first = max(curve[-1]["tokens"] for curve in curves.values()) / 2
    styles = series_style(_ordered(results), palette)
    with mpl.rc_context(styled(palette)):
        figure, axes = plot_for(len(curves))
        axes.axhline(0, color=palette.get(INK, INK), lw=1)
        for name, curve in curves.items():
            points = [point for point in curve if point["tokens"] >= first]
            band = [(p["low"], p["high"]) for p in points] if name == results["primary"] or len(curves) == 1 else None
            _band(axes, name, styles[name], points, band)
        axes.set_ylabel(f"loss minus {results['baseline']}'s, nats")
        _finish(figure, axes)
    return figure


def plot_for(series: int) -> tuple[Figure, Axes]:
    """A picture with room for the names of so many series above it."""
    legend_rows = (series + 1) // 2
    figure = Figure(figsize=(WIDTH, 3.0 + 0.22 * legend_rows), layout="constrained")
    return figure, figure.add_subplot()


def _band(
    axes: Axes,
    name: str,
    style: tuple[str, Any],
    points: Sequence[Mapping[str, Any]],
    band: Sequence[tuple[float, float]] | None,
) -> None:
    tokens = [point["tokens"] for point in points]
    axes.plot(tokens, [point["mean"] for point in points], color=style[0], ls=style[1], lw=1.8, label=name)
    if band:
        low, high = zip(*band, strict=True)
        axes.fill_between(tokens, low, high, color=style[0], alpha=0.18, lw=0)


def _finish(figure: Figure, axes: Axes) -> None:
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tokens(value)))
    figure.legend(loc="outside upper left", ncols=2, handlelength=2.6)


def _tokens(value: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def page_svg(figure: Figure, name: str, label: str) -> str:
    """The figure as an element of the page: no XML head, no ids shared with another figure, colours from CSS."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    prefix = re.sub(r"\W+", "-", name)
    text = re.sub(r'(?<![\w-])id="', f'id="{prefix}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", text)
    text = re.sub(r"font: ?[^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", text)
    colours = {INK: "--ink", FAINT: "--faint", PAPER: "--paper"} | {c: f"--series-{k}" for k, c in enumerate(SERIES)}
    for colour, variable in colours.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


def staircase(heads: Sequence[int]) -> str:
    """A schedule as the network stands: the first layer at the bottom, all equally wide, each cut into its heads."""
    height, gap, width = 7, 2, 120
    total = len(heads) * (height + gap)
    cells = []
    for layer, count in enumerate(heads):
        y, cell = total - (layer + 1) * (height + gap), max(width / count - 1, 0.4)
        cells += [f"M{width * k / count + 0.5:.2f} {y}h{cell:.2f}v{height}h-{cell:.2f}z" for k in range(count)]
    return (
        f'<svg class="staircase" role="img" aria-label="schedule {schedule_text(heads)}, first layer at the bottom" '
        f'viewBox="0 0 {width} {total}"><path d="{"".join(cells)}"/></svg>'
    )
