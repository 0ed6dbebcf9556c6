"""Attention of a study: paired by seed, from results whose figures are given."""

import numpy as np
import pytest
from scipy import stats

from prism_transformer.study.attention import analyse_attention, read_attention, write_attention
from prism_transformer.study.attention_figures import difference_bars, distance_curves

MEASURES = ("distance", "distance_beyond_sink", "sink_share", "entropy")


def result(*distances: float, heads: int = 4) -> dict:
    layers = [
        {"heads": heads, "mean": {name: value / (k + 1) for k, name in enumerate(MEASURES)}} for value in distances
    ]
    settings = {"sequences": 8, "context": 64, "documents": "packed", "text": {"origin": "text", "sha256": "0"}}
    return {"layers": layers, "settings": settings, "source": "runs/a"}


@pytest.fixture
def found():
    """Seed 1 looks 100 tokens further everywhere: pairing takes that out."""
    runs = {
        "uniform": {0: result(10.0, 30.0), 1: result(110.0, 130.0), 2: result(20.0, 40.0)},
        "prism": {0: result(8.0, 33.0, heads=1), 1: result(107.0, 133.0, heads=1), 9: result(0.0, 0.0, heads=1)},
        "late": {7: result(1.0, 2.0)},
    }
    return analyse_attention(runs, baseline="uniform", confidence=0.95)


def test_differences_are_paired_by_seed(found):
    first, second = found["differences"]["prism"]["layers"]
    interval = stats.ttest_1samp([-2.0, -3.0], 0).confidence_interval(0.95)
    assert first["distance"] == pytest.approx({"mean": -2.5, "low": interval.low, "high": interval.high, "n": 2})
    assert second["distance"]["mean"] == pytest.approx(3.0)
    assert first["entropy"]["mean"] == pytest.approx(-2.5 / 4)


def test_arms_keep_every_seed_and_their_heads(found):
    layer = found["arms"]["uniform"]["layers"][0]["distance"]
    assert layer["per_seed"] == [10.0, 110.0, 20.0] and layer["mean"] == pytest.approx(np.mean([10, 110, 20]))
    assert [layer["heads"] for layer in found["arms"]["prism"]["layers"]] == [1, 1]


def test_an_arm_without_a_pair_has_no_difference(found):
    assert found["differences"]["late"]["layers"][0]["distance"] == {"mean": None, "low": None, "high": None, "n": 0}


def test_figures_have_a_line_an_arm_and_a_bar_a_layer(found):
    lines = distance_curves(found, {}).axes[0].get_lines()
    assert sum(line.get_linestyle() != "None" for line in lines) == 3
    panels = difference_bars(found, {}).axes
    assert [len(axes.patches) for axes in panels] == [2, 0]
    assert [bar.get_height() for bar in panels[0].patches] == pytest.approx([-2.5, 3.0])


def test_written_and_read_again(found, tmp_path):
    assert read_attention(tmp_path) is None
    written = write_attention(tmp_path, found)
    assert [path.suffix for path in written] == [".json", ".svg", ".png", ".svg", ".png"]
    assert read_attention(tmp_path) == found
    assert "#0000" not in written[1].read_text()  # no placeholder colour is left
    assert write_attention(tmp_path, found) == written  # again, in their place
