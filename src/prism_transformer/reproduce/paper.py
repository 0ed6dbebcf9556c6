"""The paper's own numbers (arXiv 2606.27449, section 4), beside which those of a reproduction are set.

Losses are means and sds of 3 seeds, the rest means of 3 seeds without a spread.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ..study.paper import RESULTS

SEEDS = 3


class Figure(NamedTuple):
    """A number of the paper: the mean of 3 seeds, and their sd where it states one."""

    mean: float
    sd: float | None = None


class AblationRow(NamedTuple):
    """One schedule of the ablation, at the small scale."""

    loss: float
    improvement: float
    """over uniform heads, nats per token; as printed, which .0001 of rounding may tell from the losses"""
    speed: float
    """tokens/s relative to uniform heads"""


LOSSES: Mapping[str, Mapping[str, Figure]] = {
    row.scale.split(",")[0]: {
        "uniform": Figure(row.uniform, row.uniform_sd),
        "prism": Figure(row.prism, row.prism_sd),
    }
    for row in RESULTS
}

SPEEDS = {"small": 2_875_000, "medium": 1_025_000, "large": 656_000}
"""tokens/s of either arm on 8 H100"""

ZERO_SHOT: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "small": {
        "hellaswag": (29.6, 30.0),
        "piqa": (62.5, 62.8),
        "winogrande": (49.4, 50.2),
        "blimp": (79.5, 80.0),
        "arc_easy": (37.6, 37.7),
        "wikitext": (52.3, 51.2),
    },
    "medium": {
        "hellaswag": (38.7, 39.0),
        "piqa": (67.7, 68.2),
        "winogrande": (50.2, 50.9),
        "blimp": (80.8, 80.6),
        "arc_easy": (42.1, 43.1),
        "wikitext": (33.0, 32.9),
    },
    "large": {
        "hellaswag": (46.3, 46.5),
        "piqa": (70.2, 71.3),
        "winogrande": (53.0, 53.7),
        "blimp": (81.5, 81.5),
        "arc_easy": (45.5, 45.8),
        "wikitext": (25.7, 25.5),
    },
}
"""By task: uniform, prism; accuracies in percent (acc or acc_norm is not stated), WikiText's word perplexity."""

ABLATION: Mapping[str, AblationRow] = {
    "3x1,6x1,8x1,12x9": AblationRow(3.3691, 0.0056, 1.0),
    "6x2,8x2,12x8": AblationRow(3.3683, 0.0065, 1.0),
    "4x2,8x2,12x8": AblationRow(3.3655, 0.0093, 1.0),
    "6x4,12x8": AblationRow(3.3647, 0.0100, 1.0),
    "2x1,4x1,6x1,8x1,12x8": AblationRow(3.3647, 0.0101, 0.957),
    "3x2,6x2,12x8": AblationRow(3.3628, 0.0120, 1.0),
    "prism": AblationRow(3.3604, 0.0143, 1.0),
    "2x2,4x2,8x2,12x6": AblationRow(3.3598, 0.0150, 0.917),
}
