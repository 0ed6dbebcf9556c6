"""`prism reproduce` on a terminal: the plan first, and what is wrong."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from prism_transformer.cli import main
from prism_transformer.cli.progress import CompareProgress
from prism_transformer.cli.reproduce import _budget, _Progress, _table
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed
from prism_transformer.study.plan import RunKey
from prism_transformer.study.runner import Progress


@pytest.fixture(autouse=True)
def known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "training_speed", lambda recipe, size, **_: Speed(1e6, "measured here"))


def test_controls_at_the_small_scale_print_their_plan_then_what_is_missing(
    in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "controls", "--scale", "small"]) == 2
    said = capsys.readouterr()
    assert "controls: 33 runs, 11 arms x 3 seeds" in said.out
    assert "33 of 33 runs, 2,883,584,000 tokens each, 95,158,272,000 in all" in said.out
    for word in ("uniform-3 ", "reversed ", "shuffled-1 ", "time: about 26.5 hours", "memory: ", "disk: "):
        assert word in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert "data/fineweb: no such file" in said.err and "prism data prepare fineweb --tokens 2.9B" in said.err
    assert not list(in_empty_folder.iterdir()), "a plan leaves nothing"


def test_a_dry_run_as_json(in_empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """259.5e9 tokens of training and 90 x (19 + 1) evaluations of 1M tokens at a third, at 1M tokens/s."""
    assert main(["reproduce", "all", "--dry-run", "--json", "--seeds", "5", "--budget", "2"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [study["targets"] for study in plan["studies"]] == [["table2", "attention"], ["ablation"], ["controls"]]
    assert [study["runs"] for study in plan["studies"]] == [10, 45, 55]
    assert [study["missing"] for study in plan["studies"]] == [10, 35, 45]
    assert plan["missing"] == plan["runs"] == 90
    seconds = 90 * (2_883_584_000 + 20e6 / 3) / 1e6
    assert plan["device_hours"] == pytest.approx(seconds / 3600)
    assert plan["budget_seconds"] == 7200 and plan["in_budget"] == int(7200 / seconds * 90)
    assert plan["studies"][1]["heads"]["2x2,4x2,8x2,12x6"] == "2x2,4x2,8x2,12x6"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tabel2"], "did you mean 'table2'"),
        (["table2", "--scale", "huge"], "no scale 'huge'"),
        (["table2", "--budget", "soon"], "budget='soon' is no time"),
        (["ablation", "--scale", "large"], "ablation is of the small model"),
        (["table2", "--seeds", "0"], "seeds=0"),
        (["table2", "--micro-batch", "7"], "micro_batch"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    in_empty_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_each_study_counts_its_own_runs_and_one_line_lives_at_a_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunKey("prism", 0, 1e-3)
    ended = Progress({run: "done"}, {run: 64}, {run: {"val_loss": 3.5, "tokens": 64}})
    monkeypatch.setattr(CompareProgress, "begin", lambda self, study: None)
    with _Progress() as progress:
        for _ in range(2):
            progress.begin_study(None)
            progress.show_items(1, 2)
            progress.show(ended)
            progress.begin_model("prism seed 0")
            progress.show(ended)
            progress.show_items(1, 2)
            progress.say("measured")
    assert capsys.readouterr().err.splitlines() == ["[1/1] seed 0 prism: validation loss 3.5000", "measured"] * 2


def test_a_budget_is_hours_unless_it_says_otherwise() -> None:
    assert (_budget("8"), _budget("1.5"), _budget("30min"), _budget(None)) == (28800, 5400, 1800, None)


def test_the_table_fits_a_narrow_terminal() -> None:
    row = ["speed of 2x1,4x1,6x1,8x1,12x8 / uniform (another device)", "3.3748 ± 0.0027", "3.3748 ± 0.0027", "3"]
    section = {
        "target": "table2",
        "scale": "rehearsal",
        "paper_scale": "small",
        "caption": "A rehearsal: numbers at this size are no evidence about the paper's.",
        "columns": ["", "the paper", "ours, mean ± sd", "seeds", "ours - the paper", "within the seeds' spread"],
        "rows": [{"cells": [*row, "[+0.0001, +0.0002]", "not to be said"]}],
    }
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(_table(section))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "no evidence" in " ".join(text.split())
