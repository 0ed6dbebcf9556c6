"""A reproduction of a tiny model from plan to page, and how its studies share runs."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.data import DataSettings, prepare
from prism_transformer.errors import InputError
from prism_transformer.reproduce import run as reproduction
from prism_transformer.reproduce import scoring
from prism_transformer.reproduce import studies as studies_room
from prism_transformer.reproduce.plan import Plan, make_plan, plan_lines
from prism_transformer.reproduce.run import Watch, reproduce
from prism_transformer.reproduce.studies import PlannedStudy, plan_studies, take_over
from prism_transformer.reproduce.targets import TARGETS
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed
from prism_transformer.study.folder import Study
from prism_transformer.study.runner import Progress, ProgressReader
from prism_transformer.study.worker import work
from prism_transformer.training.loop import train
from prism_transformer.training.recipe import DeviceSettings, ModelSettings, OptimizerSettings, Recipe, TrainingSettings
from prism_transformer.training.recipe_files import RecipeFile

STUDY = {"arms": ["uniform", "prism"], "seeds": 2}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """10 steps of 64 tokens; the text is prepared."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(" ".join(f"word{i * i % 31}" for i in range(1500)))
    prepare(
        DataSettings(paths=(str(folder / "text.txt"),), tokenizer="bytes", validation_share=0.1),
        folder / "corpus",
        say=lambda sentence: None,
    )
    return Recipe(
        model=ModelSettings(layers=4, d_model=32, heads=4, context=16),
        data=DataSettings(paths=(str(folder / "corpus"),), tokenizer="bytes"),
        optimizer=OptimizerSettings(lr=3e-3),
        training=TrainingSettings(tokens=640, tokens_per_step=64, micro_batch=4, evaluations=2, evaluation_tokens=100),
        device=DeviceSettings(device="cpu", dtype="float32", threads=1),
    )


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs are trained here, without workers; their number each time. Nothing is scored or measured."""
    trained: list[int] = []

    def run_study(study: Study, **_: Any) -> Progress:
        trained.append(work(study, say=lambda sentence: None))
        return ProgressReader(study).read()

    monkeypatch.setattr(reproduction, "run_study", run_study)
    monkeypatch.setattr(scoring, "open_available", lambda folder, say: nullcontext())
    monkeypatch.setattr(speed, "training_speed", lambda recipe, size, **_: Speed(100.0, "measured here"))
    return trained


def planned(recipe: Recipe, folder: Path, *names: str, seeds: int | None = None) -> list[PlannedStudy]:
    targets = [TARGETS[name] for name in names]
    return plan_studies(targets, RecipeFile("tiny", recipe, STUDY), recipe, folder, seeds=seeds, jobs=1)


def plan_of(studies: list[PlannedStudy], budget: float | None = None) -> Plan:
    return make_plan("small", studies, vocab_size=257, text="here", text_problems=(), budget_seconds=budget)


QUIET = Watch(say=lambda sentence: None)


@pytest.fixture(scope="module")
def table2(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a scale in which table2 and attention are reproduced. Copy it to write into it."""
    folder = tmp_path_factory.mktemp("scale") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "run_study", lambda study, **_: work(study, say=lambda sentence: None))
        patch.setattr(scoring, "open_available", lambda folder, say: nullcontext())
        reproduce(
            "rehearsal",
            planned(recipe, folder, "table2", "attention"),
            eval_data=None,
            budget_seconds=None,
            watch=QUIET,
        )
    return folder


@pytest.fixture
def scale(table2: Path, tmp_path: Path) -> Path:
    shutil.copytree(table2, tmp_path / "tiny")
    return tmp_path / "tiny"


def test_every_row_is_filled_and_the_page_shows_it_with_the_caption(table2: Path) -> None:
    kept = json.loads((table2 / "table2" / "reproduction.json").read_text())["sections"]
    assert [section["target"] for section in kept] == ["table2", "attention"]
    rows = [row for section in kept for row in section["rows"]]
    losses = json.loads((table2 / "table2" / "results.json").read_text())["arms"]["prism"]["val_loss"]
    assert next(row["ours"] for row in rows if row["what"] == "loss, prism") == pytest.approx(sum(losses) / 2)
    assert all(all(row["cells"]) for row in rows)
    missing = [row["what"] for row in rows if row["ours"] is None]
    assert all(what.split()[0] in scoring.TASKS for what in missing)
    page = (table2 / "table2" / "report.html").read_text()
    assert "Beside the paper: table2" in page and "Beside the paper: attention" in page
    assert "no evidence about the paper" in page and "3.3748 ± 0.0027" in page


def test_a_study_takes_over_what_its_neighbour_has_finished(
    scale: Path, recipe: Recipe, in_this_process: list[int]
) -> None:
    """controls has uniform and prism too: 2 seeds of each are not trained again."""
    studies = planned(recipe, scale, "controls")
    arms = len(studies[0].arms)
    assert plan_of(studies).missing == 2 * arms - 4
    sections = reproduce("small", studies, eval_data=None, budget_seconds=None, watch=QUIET)
    assert in_this_process == [2 * arms - 4]
    for arm in ("uniform", "prism"):
        metrics = [scale / study / "runs" / arm / "seed-1" / "metrics.jsonl" for study in ("table2", "controls")]
        assert metrics[0].read_bytes() == metrics[1].read_bytes()
    assert sections[0]["caption"] == "" and len(sections[0]["rows"]) == arms - 1 + arms - 2
    assert plan_of(planned(recipe, scale, "table2", "controls")).missing == 0


def test_another_text_or_another_setting_is_another_run(scale: Path, recipe: Recipe, tmp_path: Path) -> None:
    other = replace(recipe, optimizer=OptimizerSettings(lr=1e-3))
    assert plan_of(planned(other, scale, "controls")).missing == len(planned(other, scale, "controls")[0].runs)
    (tmp_path / "text.txt").write_text("quite another text " * 500)
    prepare(
        DataSettings(paths=(str(tmp_path / "text.txt"),), tokenizer="bytes", validation_share=0.1),
        tmp_path / "corpus",
        say=lambda sentence: None,
    )
    elsewhere = replace(recipe, data=replace(recipe.data, paths=(str(tmp_path / "corpus"),)))
    first = planned(elsewhere, scale, "controls")[0]
    study = reproduction.open_study(
        first.recipe, first.folder, settings=first.settings, name="x", say=lambda sentence: None
    )
    assert take_over(study) == 0


def test_again_it_trains_nothing_and_more_seeds_only_those(
    scale: Path, recipe: Recipe, in_this_process: list[int]
) -> None:
    reproduce("small", planned(recipe, scale, "table2"), eval_data=None, budget_seconds=None, watch=QUIET)
    more = planned(recipe, scale, "table2", seeds=3)
    assert plan_of(more).missing == 2
    reproduce("small", more, eval_data=None, budget_seconds=None, watch=QUIET)
    assert in_this_process == [0, 2]
    assert planned(recipe, scale, "table2")[0].settings.seeds == 3, "without --seeds it goes on with what it has"


def test_a_spent_budget_ends_training_and_judges_what_there_is(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look of the runner, after one seed's runs, is past the deadline; the second study is not begun."""
    clock = [0.0]
    monkeypatch.setattr(reproduction.time, "monotonic", lambda: clock[0])

    def one_seed(study: Study, *, on_progress: Any, say: Any) -> Progress:
        for run in study.runs[:2]:
            train(study.run_recipe(run), study.run_folder(run), corpus=study.open_corpus(), say=lambda text: None)
        on_progress(ProgressReader(study).read())
        clock[0] = 61.0
        on_progress(ProgressReader(study).read())
        raise AssertionError("it went on")

    monkeypatch.setattr(reproduction, "run_study", one_seed)
    monkeypatch.setattr(scoring, "open_available", lambda folder, say: pytest.fail("scored over time"))
    said: list[str] = []
    sections = reproduce(
        "small",
        planned(recipe, tmp_path / "tiny", "table2", "controls"),
        eval_data=None,
        budget_seconds=60.0,
        watch=Watch(say=said.append),
    )
    assert any("the budget is spent: 2 of 4 runs" in sentence for sentence in said)
    assert said[-1] == f"{tmp_path / 'tiny' / 'controls'} is left to the next call"
    gap = next(row for row in sections[0]["rows"] if row["what"] == "prism - uniform")
    assert gap["n"] == 1 and gap["within"] is None


def test_a_run_that_another_process_has_begun_meanwhile_is_left_to_it(scale: Path, tmp_path: Path) -> None:
    source, target = scale / "table2" / "runs" / "uniform" / "seed-0", tmp_path / "runs" / "seed-0"
    target.mkdir(parents=True)
    (target / "metrics.jsonl").write_text("theirs")
    assert studies_room._copy(source, target) is False
    assert [path.name for path in target.parent.iterdir()] == ["seed-0"]
    assert (target / "metrics.jsonl").read_text() == "theirs"
    assert studies_room._copy(source, tmp_path / "fresh") is True
    assert (tmp_path / "fresh" / "metrics.jsonl").read_bytes() == (source / "metrics.jsonl").read_bytes()


def test_the_plan_counts_a_shared_run_once(recipe: Recipe, tmp_path: Path) -> None:
    """100 tokens/s: a run of 640 tokens and 100 + the split's tokens evaluated at a third of the cost."""
    studies = planned(recipe, tmp_path, "table2", "controls")
    arms = len(studies[1].arms)
    plan = plan_of(studies, budget=60.0)
    assert (plan.runs, plan.missing) == (2 * arms, 2 * arms)
    assert plan.whole.tokens == 2 * arms * 640
    one = plan.device_seconds / plan.missing
    assert one > 6.4
    assert plan.in_budget == min(plan.missing, int(60 / one))
    lines = plan_lines(plan, tmp_path)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("missing: ", "time: ", "memory: ", "disk: ", "budget: ", "text: here"):
        assert f"\n{word}" in text


def test_no_seed_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seeds=0"):
        planned(recipe, tmp_path, "table2", seeds=0)
