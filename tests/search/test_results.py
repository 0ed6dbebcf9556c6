"""What a search says at its end, in figures, words, table and picture."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prism_transformer import search_schedules
from prism_transformer.search.figure import draw_space
from prism_transformer.search.results import analyse, final_comparison
from prism_transformer.search.table import terminal_table
from prism_transformer.search.verdict import recommended, verdict
from prism_transformer.search.worker import work

from .made_up import made_up_loss


@pytest.fixture
def finished(begin: Callable[..., Any], tmp_path: Path) -> Any:
    search = begin(tmp_path / "s", budget="57 runs")
    work(search, train=made_up_loss, say=lambda sentence: None)
    return search


def in_terminal(results: dict[str, Any], width: int = 80) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(terminal_table(results))
    return captured.get()


def test_the_results_of_a_finished_search(finished: Any, tmp_path: Path) -> None:
    """Losses are .02 x mean heads: 1x2,4x1 is .04 below uniform, and uniform-1, which breaks a rule, .06."""
    results = analyse(finished, finished.state())
    json.dumps(results, allow_nan=False)
    rows = {row["name"]: row for row in results["ranking"]}
    assert len(rows) == results["candidates"] == 8 and results["space"] == 6
    assert results["winner"] == "1x2,4x1" and "1x2,4x1" in results["set"] and "uniform" not in results["set"]
    assert rows["1x2,4x1"]["mean"] == pytest.approx(-0.04, abs=0.004)
    assert rows["1x2,4x1"]["low"] < -0.04 < rows["1x2,4x1"]["high"]
    assert not rows["uniform-1"]["in_space"] and results["ranking"][0]["name"] == "uniform-1"
    assert rows["2x1,4x2"]["dropped"].startswith("worse than")
    final = results["final"]["differences"][results["recommended"]]
    assert final["decision"] == "lower"
    assert final["n"] == final["planned"] == 6  # what is left of 57 runs carries twice the three seeds
    assert set(results["final"]["to_uniforms"]) == {"uniform-1"}
    said = " ".join(results["verdict"])
    assert "is better than uniform on the test split with fresh seeds" in said
    assert "Lower still: uniform-1, so wider uniform heads do better here" in said  # planted: .02 below
    assert "uniform-1, outside of the constraints, had a still lower loss" in said
    assert results["cost"]["runs"] == len(finished.state().attempts) <= 57

    text = in_terminal(results)
    assert max(map(len, text.splitlines())) <= 80
    assert "best set" in text and "Final comparison" in text and "cost:" in text
    written = draw_space(results, tmp_path)
    assert [path.name for path in written] == ["space.svg", "space.png"]
    assert all(path.stat().st_size > 1000 for path in written)


def test_the_same_call_over_a_finished_search_only_says_its_result_again(finished: Any) -> None:
    told: list[str] = []
    plan = finished.plan
    results = search_schedules(plan.recipe, finished.folder, settings=plan.settings, say=told.append)
    assert results["winner"] == "1x2,4x1" and "nothing is left to train" in told[-1]
    assert json.loads((finished.folder / "results.json").read_text()) == results


def test_a_search_that_has_not_ended_says_so(begin: Callable[..., Any], tmp_path: Path) -> None:
    search = begin(tmp_path / "s")
    results = analyse(search, search.state())
    assert results["ranking"] == [] and results["recommended"] is None and results["final"] is None
    assert results["verdict"] == ["The search has not ended yet."]


LOSSES = {
    "uniform": {0: 4.00, 1: 4.02, 2: 3.99},
    "a": {0: 3.90, 1: 3.921, 2: 3.889},
    "uniform-2": {0: 3.95, 1: 3.97, 2: 3.941},
}


def compared(losses: dict[str, Any], chosen: str = "a") -> dict[str, Any]:
    return final_comparison(
        losses,
        chosen=chosen,
        planned=3,
        confidence=0.95,
        equivalence=0.001,
        uniforms=["uniform", "uniform-2"],
    )


def test_the_chosen_schedule_is_judged_alone_and_against_the_wider_uniform() -> None:
    found = compared(LOSSES)
    assert found["differences"]["a"]["mean"] == pytest.approx(-0.1)
    assert found["to_uniforms"]["uniform-2"]["mean"] == pytest.approx(-0.05, abs=1e-3)
    assert found["differences"]["a"]["decision"] == found["to_uniforms"]["uniform-2"]["decision"] == "lower"


def test_a_diverged_run_leaves_its_pair_out() -> None:
    found = compared({**LOSSES, "a": {0: 3.90, 1: None, 2: 3.889}})
    entry = found["differences"]["a"]
    assert entry["n"] == 2 and entry["left_out"] == [{"seed": 1, "arm": "a", "status": "diverged"}]
    assert entry["decision"] == "cannot_tell" and entry["reason"].startswith("a diverged with seed 1")


def test_the_last_word_is_what_the_final_comparison_has_shown() -> None:
    """The chosen one where it is better, else uniform; where uniform was chosen, the best that is better."""
    final = compared(LOSSES)
    assert recommended("a", final, ["uniform", "a"]) == "a"
    alike = {
        seed: loss + noise for (seed, loss), noise in zip(LOSSES["uniform"].items(), (0.03, -0.03, 0), strict=True)
    }
    of_other = compared({**LOSSES, "b": alike}, chosen="b")
    assert of_other["differences"]["a"]["decision"] == "lower"
    assert recommended("b", of_other, ["uniform", "a", "b"]) == "uniform"  # a was not put to the test
    of_uniform = compared(LOSSES, chosen="uniform")
    assert recommended("uniform", of_uniform, ["uniform", "a"]) == "a"
    assert recommended("uniform", of_uniform, ["uniform"]) == "uniform"  # a and uniform-2 are outside of the space
    assert recommended("b", None, ["uniform", "b"]) == "b" and recommended(None, None, []) is None


def test_uniform_itself_may_be_what_is_recommended() -> None:
    found = compared(LOSSES, chosen="uniform")
    assert "uniform" not in found["differences"] and found["differences"]["uniform-2"]["decision"] == "lower"
    results = {
        "winner": "uniform", "chosen": "uniform", "chosen_heads": "4x3", "set": ["uniform"], "why": "because",
        "recommended": "a", "recommended_heads": "2x3", "against": [], "final": found, "confidence": 0.95, "space": 56,
        "ranking": [{"name": name, "tokens": 1000, "in_space": True} for name in ("uniform", "a")],
    }  # fmt: skip
    said = " ".join(verdict(results))
    assert "Of 2 schedules tried (56 are legal) uniform alone was not shown to be worse, at 1,000 tokens a run." in said
    assert "Chosen for the final comparison: uniform (4x3): because." in said
    assert said.endswith("Recommended: a (2x3): the final comparison has shown it to be better than uniform.")
    alike = {
        seed: loss + noise for (seed, loss), noise in zip(LOSSES["uniform"].items(), (0.03, -0.03, 0), strict=True)
    }
    results |= {"final": compared({**LOSSES, "a": alike}, chosen="uniform"), "recommended": "uniform"}
    assert verdict(results)[-1].startswith("Recommended: keep uniform. The final comparison has shown uniform-2 to be")
    results["final"] = compared({**LOSSES, "a": alike, "uniform-2": alike}, chosen="uniform")
    assert verdict(results)[-1] == "Recommended: keep uniform; the final comparison has shown no schedule to be better."


def test_a_budget_that_ended_before_the_final_comparison_is_told() -> None:
    found = compared({name: {0: of[0]} for name, of in LOSSES.items()})
    results = {
        "winner": "a", "chosen": "a", "chosen_heads": "a", "recommended": "a", "recommended_heads": "a",
        "set": ["a", "b"], "why": "because",
        "against": ["a rule"], "final": found, "confidence": 0.95, "space": 56,
        "ranking": [{"name": name, "tokens": 1000, "in_space": True} for name in ("a", "b", "c")],
    }  # fmt: skip
    said = verdict(results)
    assert said[0].startswith("2 of 3 schedules tried (56 are legal) cannot be told") and "Mind: a rule." in said
    assert "before the final comparison had two pairs" in said[-1]
