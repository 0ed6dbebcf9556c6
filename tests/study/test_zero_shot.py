"""Zero-shot scores of a study, summed up by arm."""

import pytest

from prism_transformer.evaluation.comparison import ScoredRun, compare_arms
from prism_transformer.study.zero_shot import label, read_zero_shot, summarise, write_zero_shot


def run(arm: str, seed: int, right: list[float]) -> dict[str, ScoredRun]:
    value = sum(right) / len(right)
    score = {
        "task": "piqa", "items": len(right), "available": 8, "shots": 0, "version": 1.0, "chance": 0.5, "prompt": {},
        "truncated": 0, "at_chance": ["acc"] if value < 0.6 else [],
        "metrics": {"acc": {"value": value, "stderr": 0.1, "higher": True}},
    }  # fmt: skip
    items = [{"item": k, "sha256": str(k), "prompt_sha256": "", "values": {"acc": v}} for k, v in enumerate(right)]
    return {"piqa": ScoredRun(arm=arm, seed=seed, score=score, items=items)}


@pytest.fixture
def tasks():
    runs = [
        run("uniform", 0, [1.0, 0.0, 0.0, 0.0]),
        run("uniform", 1, [1.0, 1.0, 0.0, 0.0]),
        run("prism", 0, [1.0, 1.0, 1.0, 0.0]),
        run("prism", 1, [1.0, 1.0, 1.0, 0.0]),
    ]
    sources = [f"runs/{k}" for k in range(4)]
    return summarise(runs, sources, compare_arms(runs))


def test_by_arm_and_seed(tasks):
    piqa = tasks["piqa"]
    assert piqa["arms"]["uniform"]["metrics"]["acc"] == {
        "mean": pytest.approx(0.375),
        "sd": pytest.approx(0.125 * 2**0.5),
        "per_seed": [0.25, 0.5],
    }
    assert piqa["arms"]["uniform"]["at_chance"] == {"acc": 2} and piqa["arms"]["prism"]["at_chance"] == {}
    assert piqa["arms"]["prism"]["sources"] == ["runs/2", "runs/3"]
    (difference,) = piqa["comparisons"]
    assert difference["arm"] == "prism" and difference["mean"] == pytest.approx(0.375) and difference["seeds"] == 2


def test_tasks_are_added_to_those_that_are_there(tasks, tmp_path):
    assert read_zero_shot(tmp_path) is None
    write_zero_shot(tmp_path, "", tasks)
    write_zero_shot(tmp_path, "-first-4", tasks)
    assert list(read_zero_shot(tmp_path)) == ["piqa", "piqa-first-4"]


def test_partial_scores_have_a_name_of_their_own():
    assert (label(None), label(5), label(5, 2)) == ("", "-first-5", "-2-shot-first-5")
