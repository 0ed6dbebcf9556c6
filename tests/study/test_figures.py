"""The pictures of a study show its numbers, in one place each."""

from copy import deepcopy

import pytest

from prism_transformer.study.figures import LIGHT, differences, loss_curves, study_figures
from prism_transformer.study.results import analyse

from .fake_study import arms, endpoint, runs

ALL = ["verdict", "calibration", "differences", "loss_curves", "difference_curves"]


@pytest.fixture(scope="module")
def results():
    return analyse(arms(), runs(3), endpoint(3))


def test_there_is_a_picture_of_all_that_the_results_have(results):
    assert list(study_figures(results, {})) == ALL
    two = analyse(arms(["uniform", "prism"]), runs(3, names=["uniform", "prism"]), endpoint(3))
    assert list(study_figures(two, {})) == ["verdict", "loss_curves", "difference_curves"]


def test_each_arm_has_its_seeds_its_interval_and_its_mean_in_percent_of_the_loss(results):
    names = ["prism", "reversed"]
    axes = differences(results, names, LIGHT).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    seeds, interval, mean = axes.get_lines()[1:4]  # after the line at zero
    losses = {name: results["arms"][name]["val_loss"] for name in ("uniform", "prism")}
    level = sum(losses["uniform"]) / 3
    by_hand = [100 * (arm - base) / level for arm, base in zip(losses["prism"], losses["uniform"], strict=True)]
    assert list(seeds.get_xdata()) == pytest.approx(by_hand)
    assert list(mean.get_xdata()) == pytest.approx([sum(by_hand) / 3])
    entry = results["differences"]["prism"]
    assert list(interval.get_xdata()) == pytest.approx([100 * entry["low"] / level, 100 * entry["high"] / level])


def test_curves_begin_at_half_of_the_tokens_and_one_colour_is_one_arm(results):
    axes = loss_curves(results, ["uniform", "prism"], LIGHT).axes[0]
    for line, name in zip(axes.get_lines(), ("uniform", "prism"), strict=True):
        points = [point for point in results["curves"][name] if point["tokens"] >= 1_024_000]
        assert list(line.get_xdata()) == [point["tokens"] for point in points]
        assert list(line.get_ydata()) == pytest.approx([point["mean"] for point in points])
    dots = differences(results, ["prism"], LIGHT).axes[0].get_lines()
    assert {line.get_color() for line in dots[1:]} == {axes.get_lines()[1].get_color()}


def test_a_final_loss_on_more_text_stands_apart_from_the_line(results):
    results = deepcopy(results)
    for point in results["curves"]["prism"][:-1]:
        point["is_whole"] = False
    line, diamond = loss_curves(results, ["prism"], LIGHT).axes[0].get_lines()
    last = results["curves"]["prism"][-1]
    assert max(line.get_xdata()) < last["tokens"]
    assert (list(diamond.get_xdata()), list(diamond.get_ydata())) == ([last["tokens"]], [last["mean"]])
