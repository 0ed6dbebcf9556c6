"""The plan of a study that has begun, and the speed that its first steps show."""

import json
from pathlib import Path

from prism_transformer.study.estimate import Speed
from prism_transformer.study.planning import first_speed, plan_of

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
