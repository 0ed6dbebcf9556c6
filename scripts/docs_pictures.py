"""Draw the pictures of the documentation with the tool itself: python scripts/docs_pictures.py STUDY

STUDY is a finished study whose report's figures are shown, in the light colours and on white.
"""

import json
import re
import sys
from pathlib import Path

from prism_transformer.design.drawing import staircase_svg
from prism_transformer.design.families import expand_arm
from prism_transformer.study import figures
from prism_transformer.study.head_figure import cut_matrix

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SIZES = {"n_layers": 12, "d_model": 768, "base_heads": 12}
VARIABLES = {"--ink": figures.INK, "--faint": figures.FAINT, "--paper": figures.PAPER}
VARIABLES |= {f"--series-{k}": colour for k, colour in enumerate(figures.SERIES)}


def standing_alone(svg: str) -> str:
    """A picture of the report's page as a file of its own."""
    for variable, colour in VARIABLES.items():
        svg = svg.replace(f"var({variable})", figures.LIGHT[colour])
    found = re.search(r'viewBox="([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    x, y, width, height = found.groups()
    head = f'<svg width="{width}" height="{height}" font-family="sans-serif"'
    if "xmlns=" not in svg:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    svg = svg.replace("<svg", head, 1)
    paper = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{figures.LIGHT[figures.PAPER]}"/>'
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + paper, svg, count=1) + "\n"


def main() -> None:
    results = json.loads((Path(sys.argv[1]) / "results.json").read_text(encoding="utf-8"))
    (IMAGES / "cut-matrix.svg").write_text(standing_alone(cut_matrix()), encoding="utf-8")
    arms = list(results["differences"])
    drawn = {
        "differences": figures.differences(results, arms, figures.LIGHT),
        "loss-curves": figures.loss_curves(results, [results["baseline"], *arms], figures.LIGHT),
    }
    for name, figure in drawn.items():
        if figure is not None:
            _, png = figures.save_figure(figure, IMAGES / name)
            png.unlink()
    for arm in ("uniform", "prism", "reversed"):
        schedule = expand_arm(arm, **SIZES)[arm]
        (IMAGES / f"{arm}-small.svg").write_text(staircase_svg(schedule), encoding="utf-8")


if __name__ == "__main__":
    main()
