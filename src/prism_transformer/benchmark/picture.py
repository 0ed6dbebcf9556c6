"""The picture of a benchmark: each arm's speed relative to the first one, with its interval."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
}
_COLOUR, _UNFAIR, _FAINT = "#0072b2", "#d55e00", "#636973"


def draw(found: Mapping[str, Any], place: Path) -> list[Path]:
    """Write bench.svg and bench.png into `place`; with one arm its share of peak is drawn instead of ratios."""
    works = list(found["settings"]["work"])
    names = list(found["ratios"]) or list(found["arms"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.9 + 0.75 * len(works) + 0.25 * len(names) * len(works)), layout="constrained")
        panels = figure.subplots(len(works), 1, squeeze=False, sharex=True)[:, 0]
        for axes, work in zip(panels, works, strict=True):
            _panel(axes, found, work, names)
        sizes = found["sizes"]
        figure.suptitle(
            f"{sizes['layers']} layers, d_model {sizes['d_model']}, context {sizes['context']}, "
            f"{found['device']['dtype']} on {found['device']['gpu'] or found['device']['processor']}",
            fontsize="medium",
            x=0.01,
            ha="left",
        )
        written = []
        for kind in ("svg", "png"):
            written.append(place / f"bench.{kind}")
            figure.savefig(written[-1], dpi=160)
    return written


def _panel(axes: Axes, found: Mapping[str, Any], work: str, names: list[str]) -> None:
    for row, name in enumerate(names):
        colour = _UNFAIR if name in found["unfair"] else _COLOUR
        rate = found["arms"][name][work]["tokens_per_second"]
        ratio = found["ratios"].get(name, {}).get(work)
        value = ratio["ratio"] if ratio else found["arms"][name][work]["share_of_peak"] or 0.0
        if ratio:
            axes.plot([ratio["low"], ratio["high"]], [row, row], color=colour, lw=2, solid_capstyle="butt")
        axes.plot([value], [row], "o", color=colour, ms=5)
        unfair = ", unfair" if name in found["unfair"] else ""
        axes.annotate(f"{rate:,.0f} tokens/s{unfair}", (1.01, row), xycoords=("axes fraction", "data"), va="center")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    if found["ratios"]:
        axes.axvline(1, color=_FAINT, lw=1)
        axes.set_title(f"{work}: speed relative to {found['baseline']}, 95 % interval")
    else:
        axes.set_xlim(0, 1)
        axes.set_title(f"{work}: share of the device's peak")
