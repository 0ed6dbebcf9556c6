"""Two arms on the same items, with answers made by hand."""

import numpy as np
import pytest

from prism_transformer.errors import InputError
from prism_transformer.evaluation.comparison import ScoredRun, compare, compare_arms


def scored(
    arm: str, seed: int | None, values: list, *, metric: str = "acc", tasks: list[str] | None = None
) -> ScoredRun:
    items = [
        {"item": k, "sha256": str(k), "prompt_sha256": "p", "values": {metric: value}}
        | ({"task": tasks[k]} if tasks else {})
        for k, value in enumerate(values)
    ]
    score = {"task": "piqa", "metrics": {metric: {"value": 0.0, "stderr": None, "higher": True}}}
    return ScoredRun(arm=arm, seed=seed, score=score, items=items)


def test_one_pair_of_accuracies_is_judged_by_mcnemar():
    first = scored("a", None, [1.0] * 1 + [0.0] * 8 + [1.0] * 20)
    second = scored("b", None, [0.0] * 1 + [1.0] * 8 + [1.0] * 20)
    (found,) = compare([first], [second])
    assert found["mean"] == pytest.approx(7 / 29)
    assert (found["only_arm"], found["only_baseline"], found["test"]) == (8, 1, "mcnemar")
    assert found["p"] == pytest.approx(20 / 512) and found["decision"] == "higher"
    (back,) = compare([second], [first])
    assert back["decision"] == "lower" and back["mean"] == -found["mean"]


def test_a_small_difference_cannot_be_told_from_noise():
    first = scored("a", None, [1.0, 0.0, 0.0] + [1.0] * 97)
    second = scored("b", None, [0.0, 1.0, 1.0] + [1.0] * 97)
    (found,) = compare([first], [second])
    assert found["decision"] == "cannot_tell" and found["low"] < 0 < found["high"]


def test_seeds_are_paired_with_themselves():
    """Seed 1 is far better at everything, in both arms: only pairing shows the true difference of one item in ten."""
    base = {0: [0.0] * 50 + [1.0] * 50, 1: [0.0] * 10 + [1.0] * 90}
    arm = {seed: [1.0] * 5 + values[5:] for seed, values in base.items()}
    baseline = [scored("a", seed, values) for seed, values in base.items()]
    (found,) = compare(baseline, [scored("b", seed, values) for seed, values in arm.items()])
    assert found["mean"] == pytest.approx(0.05) and found["seeds"] == 2 and "test" not in found
    (one,) = compare(baseline, [scored("b", 1, arm[1]), scored("b", 7, arm[0])])
    assert one["seeds"] == 1  # only seed 1 is in both


def test_arms_without_a_seed_in_common_are_not_paired_unless_alone():
    runs = [scored("a", 0, [0.0, 1.0]), scored("a", 1, [0.0, 1.0])]
    assert compare(runs, [scored("b", 2, [1.0, 1.0]), scored("b", 3, [1.0, 1.0])]) == []
    assert compare(runs[:1], [scored("b", 2, [1.0, 1.0])])[0]["seeds"] == 1


def test_perplexities_are_compared_in_nats_with_their_ratio():
    words = 100.0
    first = scored("a", None, [(-300.0, words), (-310.0, words), (-290.0, words)], metric="word_perplexity")
    second = scored("b", None, [(-290.0, words), (-301.0, words), (-279.0, words)], metric="word_perplexity")
    (found,) = compare([first], [second])
    assert found["mean"] == pytest.approx(0.1) and found["unit"] == "nats per word"
    assert found["ratio"] == pytest.approx(np.exp(-0.1)) and found["decision"] == "higher"


def test_each_task_of_a_group_counts_alike():
    """One task of two items, one of eight: the difference is the mean of the tasks' differences."""
    tasks = ["x"] * 2 + ["y"] * 8
    first = scored("a", None, [0.0, 0.0] + [1.0] * 8, tasks=tasks)
    second = scored("b", None, [1.0, 1.0] + [1.0] * 6 + [0.0] * 2, tasks=tasks)
    (found,) = compare([first], [second])
    assert found["mean"] == pytest.approx((1.0 - 0.25) / 2)


def test_other_items_are_refused():
    with pytest.raises(InputError, match="piqa: a and b were not scored on the same items"):
        compare([scored("a", None, [1.0, 0.0])], [scored("b", None, [1.0, 0.0, 1.0])])


def test_every_arm_against_the_first():
    runs = [{"piqa": scored(arm, seed, [1.0, 0.0, float(seed)])} for arm in ("u", "v", "w") for seed in (0, 1)]
    assert [(each["arm"], each["baseline"], each["task"]) for each in compare_arms(runs)] == [
        ("v", "u", "piqa"),
        ("w", "u", "piqa"),
    ]
    assert compare_arms([]) == []


def test_where_no_item_differs_the_interval_is_not_empty():
    """Clopper-Pearson's upper limit for 0 of 36 at 95 %: 1 - 0.025^(1/36) = 0.0974."""
    first, second = (scored(arm, None, [1.0, 0.0] * 18) for arm in "ab")
    (found,) = compare([first], [second])
    assert (found["low"], found["high"]) == pytest.approx((-0.0974, 0.0974), abs=1e-4)
    assert found["decision"] == "cannot_tell"


def test_losses_of_a_text_are_weighted_by_tokens():
    first = scored("a", 0, [(30.0, 10), (12.0, 4)], metric="nats_per_token")
    second = scored("b", 0, [(25.0, 10), (11.0, 4)], metric="nats_per_token")
    (found,) = compare([first], [second])
    assert found["mean"] == pytest.approx(-6 / 14) and found["unit"] == "nats per token"
