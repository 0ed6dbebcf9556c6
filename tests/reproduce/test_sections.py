"""Rows of each target out of results that were written by hand."""

from typing import Any

import pytest

from prism_transformer.reproduce.paper import ABLATION, ZERO_SHOT
from prism_transformer.reproduce.sections import section

HEADS = [3, 3, 6, 6, 8, 8] + [12] * 6


def results(losses: dict[str, list[float | None]]) -> dict[str, Any]:
    arms = {
        name: {
            "heads": HEADS if name == "prism" else [12] * 12,
            "val_loss": values,
            "tokens_per_second": 1000.0,
            "relative_speed": 0.98,
            "n": len(values),
        }
        for name, values in losses.items()
    }
    return {"seeds": [0, 1, 2], "arms": arms}


def rows(target: str, found: dict[str, Any], scale: str = "small", **more: Any) -> dict[str, dict[str, Any]]:
    values = {"zero_shot": {}, "zero_shot_label": "", "attention": None} | more
    return {row["what"]: row for row in section(target, scale, found, **values)["rows"]}


LOSSES = {"uniform": [3.38, 3.37, 3.39], "prism": [3.36, 3.36, 3.37]}


def test_table2_sets_losses_gap_and_speed_beside_the_paper_s() -> None:
    found = rows("table2", results(LOSSES))
    assert found["loss, uniform"]["ours"] == pytest.approx(3.38)
    assert found["loss, uniform"]["paper"] == 3.3748
    gap = found["prism - uniform"]
    assert (gap["ours"], gap["paper"]) == (pytest.approx(-0.05 / 3), pytest.approx(-0.0144))
    assert gap["ours_sd"] == pytest.approx(0.005773502)  # of -.02, -.01, -.02
    assert found["speed, prism / uniform"]["difference"] == pytest.approx(-0.02)
    assert found["speed, prism"]["paper"] == 2_875_000
    assert found["speed, prism"]["cells"] == ["speed, prism, tokens/s", "2,875,000", "1,000", "3", "n/a", "n/a"]


def test_a_run_that_is_missing_leaves_its_pair_out() -> None:
    found = rows("table2", results({"uniform": [3.38, None, 3.39], "prism": [3.36, 3.36, None]}))
    assert found["prism - uniform"]["n"] == 1
    assert found["prism - uniform"]["within"] is None


def test_zero_shot_shows_both_accuracies_in_percent_beside_the_paper_s_one() -> None:
    def arm(acc: float, norm: float) -> dict[str, Any]:
        return {"metrics": {"acc": {"per_seed": [acc, acc]}, "acc_norm": {"per_seed": [norm, norm]}}}

    scored = {
        "piqa-first-5": {"items": 5, "available": 1838, "arms": {"uniform": arm(0.6, 0.4), "prism": arm(0.8, 1.0)}}
    }
    found = rows("table2", results(LOSSES), zero_shot=scored, zero_shot_label="-first-5")
    assert found["piqa acc, uniform"]["ours"] == pytest.approx(60) and found["piqa acc, uniform"]["paper"] == 62.5
    assert found["piqa acc_norm, prism"]["ours"] == pytest.approx(100)
    missing = found["wikitext word_perplexity, prism"]
    assert (missing["ours"], missing["cells"][2], missing["paper"]) == (
        None,
        "not scored",
        ZERO_SHOT["small"]["wikitext"][1],
    )


def test_the_ablation_has_every_row_three_times_and_uniform() -> None:
    losses = {"uniform": [3.38, 3.37, 3.39]} | {arm: [3.36, 3.35, 3.37] for arm in ABLATION}
    found = rows("ablation", results(losses))
    assert len(found) == 1 + 3 * len(ABLATION)
    assert found["improvement, 6x4,12x8"]["ours"] == pytest.approx(0.02)
    assert found["improvement, 6x4,12x8"]["paper"] == 0.0100
    assert found["speed, 2x2,4x2,8x2,12x6 / uniform"]["paper"] == 0.917


def test_controls_are_set_beside_uniform_and_prism_beside_each_of_them() -> None:
    found = rows("controls", results(LOSSES | {"uniform-6": [3.35, 3.34, 3.36], "reversed": [3.37, 3.38, 3.37]}))
    assert found["uniform-6 - uniform"]["ours"] == pytest.approx(-0.03)
    assert found["prism - uniform-6"]["ours"] == pytest.approx(0.04 / 3)
    assert found["prism - reversed"]["cells"][1] == "not in it"
    assert found["prism - uniform"]["paper"] == pytest.approx(-0.0144)
    assert found["uniform-6 - uniform"]["cells"][4].startswith("[")


def attention(deltas: list[float], context: int = 1024) -> dict[str, Any]:
    """Two seeds; uniform looks 200 tokens back in every layer, prism `deltas` more, ± .1 by the seed."""

    def arm(values: list[list[float]]) -> dict[str, Any]:
        layers = [{"distance": {"mean": sum(pair) / 2, "per_seed": pair}} for pair in values]
        return {"seeds": [0, 1], "layers": layers}

    uniform = [[200.0, 200.0]] * 12
    prism = [[200 + delta - 0.1, 200 + delta + 0.1] for delta in deltas]
    return {"settings": {"context": context}, "arms": {"uniform": arm(uniform), "prism": arm(prism)}}


def test_the_paper_s_words_about_attention_are_held_against_the_layers_they_mean() -> None:
    """Wide layers 1 and 2; the ramp ends at layer 7; the last third are 9 to 12."""
    deltas = [-20, -20, -5, 0, 0, 5, 30, 10, 0.01, -0.01, 0.02, -0.02]
    found = list(rows("attention", results(LOSSES), attention=attention(deltas)).values())
    assert [row["within"] for row in found] == [True] * 5
    assert found[0]["ours"] == pytest.approx(-20) and "layers 1 to 2" in found[0]["what"]
    assert found[1]["ours"] == pytest.approx(30) and "layer 7" in found[1]["what"]
    assert "layers 9 to 12" in found[2]["what"]
    assert (found[3]["ours"], found[4]["ours"]) == (pytest.approx(180), pytest.approx(230))
    turned = list(rows("attention", results(LOSSES), attention=attention([-d for d in deltas])).values())
    assert [row["within"] for row in turned[:1]] == [False]
    elsewhere = list(rows("attention", results(LOSSES), attention=attention(deltas, context=64)).values())
    assert [row["within"] for row in elsewhere[3:]] == [None, None]


def test_a_rehearsal_says_that_it_is_no_evidence() -> None:
    values: dict[str, Any] = {"zero_shot": {}, "zero_shot_label": "", "attention": None}
    assert "no evidence" in section("table2", "rehearsal", results(LOSSES), **values)["caption"]
    assert section("table2", "small", results(LOSSES), **values)["caption"] == ""
