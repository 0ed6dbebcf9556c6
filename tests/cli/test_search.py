"""`prism search` as a user types it."""

import json
from pathlib import Path

import pytest

from prism_transformer.cli import main
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed


@pytest.fixture(autouse=True)
def known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "training_speed", lambda recipe, size: Speed(20_000.0, "measured here"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["search", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_a_dry_run_says_the_count_and_the_cost_before_anything_is_spent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "s"
    code, text = said(capsys, "--dry-run", "--tokens", "2048000", "--budget", "2h", "--out", str(out), "--jobs", "1")
    assert code == 0 and not out.exists()
    assert "space: 10 legal schedules, all are tried; beside them 2 references outside of it" in " ".join(text.split())
    assert "round 1: 36 runs of 512,000 tokens" in text and "end: at the most 25 runs of 2,048,000 tokens" in text
    assert "at 20,000 tokens/s, measured here; budget 2 h 0 min" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80 and "evaluation:" not in text


def test_where_evaluation_takes_much_of_the_time_the_plan_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of 32,000 to 128,000 tokens with a validation split of 300,000, of which a token takes a third of one."""
    code, text = said(capsys, "--dry-run", "--tokens", "128000", "--budget", "2h", "--jobs", "1")
    told = " ".join(text.split())
    share = int(told.split("evaluation: ")[1].split("%")[0])
    assert code == 0 and 100 / 228 < share / 100 < 100 / 132  # of the longest runs alone, and of the shortest
    assert "tokens with each run; a smaller --held-out-bytes leaves more for training" in told


def test_a_grid_prints_its_count_tokens_and_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """12 schedules x 3 seeds and 5 x 5 runs at the end are 61 runs of 2,048,000 tokens."""
    code, text = said(capsys, "--dry-run", "--tokens", "2048000", "--method", "grid", "--json", "--jobs", "2")
    found = json.loads(text)
    assert code == 0 and found["space"] == 10 and found["runs"] == 61 and found["tokens"] == 61 * 2_048_000
    assert found["tokens_per_second"] == 40_000 and len(found["schedules"]) == 12
    assert found["seconds"] > found["tokens"] / 40_000


def test_a_model_far_too_large_takes_more_than_its_bound(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which was measured nowhere."""
    bound = Speed(20_000.0, "from the matrix products alone")
    monkeypatch.setattr(speed, "training_speed", lambda recipe, size: bound)
    code, text = said(capsys, "--dry-run", "--tokens", "2048000", "--budget", "2h", "--jobs", "1")
    told = " ".join(text.split())
    assert code == 0 and "measured here" not in told
    assert "; more than " in told and "at 20,000 tokens/s, from the matrix products alone; budget" in told


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--budget", "soon"], "budget='soon' is neither time nor a number of tokens or runs"),
        (["--budget", "1 run", "--dry-run"], "budget 1 run is too small: one run takes 1 run"),
        (["--budget", "20s", "--dry-run"], "budget 20 s is too small: one run takes"),
        (["--method", "grid", "--budget", "20 runs", "--dry-run"], "the first round of 12 schedules 36 runs"),
        (["--min-base-layers", "5"], "what empties the space: min_base_layers=5"),
        (["--max-head-dim", "8"], "what empties the space: max_head_dim=8"),
        (["--allowed-heads", "1", "2", "--no-boundary"], "excludes uniform, which has 4 heads"),
        (["--seeds", "1", "--test-share", "0"], "seeds=1: a round needs at least 2"),
        (["--schedule", "prism"], "a search chooses the schedule"),
        (["--jobs", "0"], "--jobs 0 must be at least 1"),
        (["--join", "nowhere"], "nowhere is no search"),
        (["--data", "nowhere", "--dry-run"], "nowhere: no such file or folder"),
        (["--join", "sqlite:///x.db", "--seeds", "4"], "--seeds: a search that is joined has its settings"),
        (["--join", "nowhere", "--out", "x", "--name", "y"], "--out --name: a search that is joined by its folder has"),
        (["--join", "nowhere", "--data", "x"], "--data: a search that is joined by its folder has its settings, name"),
        (["--storage", "postgresql+psycopg://me:secret@127.0.0.1:1/db"], "cannot be reached"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prism_transformer.search.storage.OPENING_PAUSE", 0.0)
    code, text = said(capsys, *arguments)
    assert code == 2 and problem in text and "Traceback" not in text and "secret" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_search_from_text_to_recommendation_and_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny_yaml: str
) -> None:
    out = tmp_path / "s"
    command = ["--recipe", tiny_yaml, "--out", str(out), "--budget", "34 runs", "--seeds", "2"]
    command += ["--final-seeds", "2", "--jobs", "1"]
    code, text = said(capsys, *command)
    assert code == 0 and "Recommended:" in text and "Final comparison" in text
    assert {"results.json", "space.svg", "space.png", "search.yaml", "trials.journal"} <= {
        p.name for p in out.iterdir()
    }
    results = json.loads((out / "results.json").read_text())
    assert results["is_finished"] and results["cost"]["runs"] <= 34
    code, again = said(capsys, "--join", str(out), "--json")
    found, _ = json.JSONDecoder().raw_decode(again, again.index("{"))
    assert code == 0 and found == results and "nothing is left to train" in again
