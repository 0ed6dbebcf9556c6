"""The plan of a study that has begun, and the speed that its first steps show."""

import json
from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study import budget, speed
from prism_transformer.study.arms import parse_arms
from prism_transformer.study.budget import Candidate, fit_budget
from prism_transformer.study.context import plan_rows
from prism_transformer.study.estimate import Speed
from prism_transformer.study.plan import StudySettings
from prism_transformer.study.planning import choose_recipe, estimator, first_speed, plan_of
from prism_transformer.study.results import analyse
from prism_transformer.training.recipe import Recipe, with_model, with_training

from .conftest import Begin


def write(study, arm: str, *speeds: float | None) -> None:
    folder = study.run_folder(next(run for run in study.runs if run.arm == arm and run.seed == 0))
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"step": n, "tokens": 64 * n, "tokens_per_second": speed} for n, speed in enumerate(speeds, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_speed_is_that_after_the_first_line_of_every_run_that_began(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path, jobs=2)
    assert first_speed(study) is None
    write(study, "uniform", 1.0, 300.0, 900.0)
    assert first_speed(study) is None  # of two side by side one has begun
    write(study, "prism", None, 1.0, 500.0)
    assert first_speed(study) == Speed(400.0, "by the first steps")


def test_the_plan_takes_its_time_from_them(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path, jobs=1)
    assert plan_of(study, study.open_corpus()).seconds is None
    write(study, "uniform", 1.0, 64.0)
    plan = plan_of(study, study.open_corpus())
    assert plan.training_seconds == 4 * 640 / 64  # 2 arms, 2 seeds
    assert (plan.runs, plan.jobs, plan.speed_source) == (4, 1, "by the first steps")


def test_the_text_is_looked_at_once_however_many_plans_are_tried(tiny: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 to 10 seeds are nine estimates."""
    looks = []
    find_files = budget.find_files
    monkeypatch.setattr(budget, "find_files", lambda *given, **how: looks.append(given) or find_files(*given, **how))
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1e6, "measured here"))
    of = estimator(parse_arms(["prism"], tiny.model), vocab_size=257)
    _, settings = fit_budget(tiny, StudySettings(budget="1h", jobs=1), 3600.0, of)
    assert settings.seeds == 10 and len(looks) == 1


def test_a_recipe_that_the_options_make_impossible_does_not_fit(tiny: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer tokens than one step of the larger one; where no recipe can, the first one's reason is told."""
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1e6, "measured here"))
    monkeypatch.setattr(speed, "matrix_peak", lambda *_: 1e15)
    large = with_training(with_model(tiny, d_model=32), tokens_per_step=128)
    settings = StudySettings(jobs=1)
    few = [Candidate(each, with_training(each, tokens=64), settings, 257) for each in (large, tiny)]
    found = choose_recipe(few)
    assert found is not None and found.label is tiny
    none = [Candidate(each, with_training(each, tokens=32), settings, 257) for each in (large, tiny)]
    with pytest.raises(InputError, match="less than one step of 128 tokens"):
        choose_recipe(none)


def test_what_happened_is_not_said_in_words_of_the_plan(begin: Begin, tmp_path: Path) -> None:
    """Before a pair there is no spread: not known beforehand, and nothing afterwards. One rate is one rate."""
    study = begin(tmp_path, seeds=1)
    runs = [study.result(run) for run in study.runs]
    results = analyse(study.arm_infos(), runs, study.endpoint())
    rows = {row["what"]: (row["planned"], row["happened"]) for row in plan_rows(study, runs, results, None)}
    assert rows["Smallest difference to be found"] == ("not known before the spread is", "–")
    assert rows["Runs"] == ("2 (2 arms × 1 seed × 1 rate)", "0")
