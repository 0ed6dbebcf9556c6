"""From text and arms to a verdict: `compare`, with its workers in this process."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study import compare as compare_module
from prism_transformer.study.compare import compare, conclude
from prism_transformer.study.folder import Study
from prism_transformer.study.plan import StudySettings
from prism_transformer.study.worker import work
from prism_transformer.training.recipe import DeviceSettings, Recipe, with_model, with_training

Begin = Callable[..., Study]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Workers in this process; the list holds how many runs each call trained."""
    trained: list[int] = []
    monkeypatch.setattr(compare_module, "run_study", lambda study, say, **_: trained.append(work(study, say=say)))
    return trained


def settings(**changes: Any) -> StudySettings:
    return replace(StudySettings(seeds=2), **changes)


def test_a_study_ends_with_results_that_are_on_the_disk(tiny: Recipe, tmp_path: Path, in_process: list[int]) -> None:
    said: list[str] = []
    results = compare(tiny, tmp_path / "study", settings=settings(), say=said.append)
    assert json.loads((tmp_path / "study/results.json").read_text()) == json.loads(json.dumps(results))
    assert (tmp_path / "study/report.html").exists()
    assert results["seeds"] == [0, 1] and results["baseline"] == "uniform"
    for arm, heads in {"uniform": [4, 4], "prism": [1, 4]}.items():
        losses = results["arms"][arm]["val_loss"]
        assert results["arms"][arm]["heads"] == heads
        for seed, loss in enumerate(losses):
            lines = (tmp_path / f"study/runs/{arm}/seed-{seed}/metrics.jsonl").read_text().splitlines()
            last = json.loads(lines[-1])
            assert last["final"] and last["val_loss"] == loss and last["tokens"] == 640
    assert results["differences"]["prism"]["n"] == 2
    assert results["verdict"]["arm"] == "prism"
    assert sum(sentence.startswith("text:") for sentence in said if "epochs" in sentence) == 1


def test_the_same_call_trains_nothing_and_more_seeds_are_a_second_look(
    tiny: Recipe, tmp_path: Path, in_process: list[int]
) -> None:
    first = compare(tiny, tmp_path, settings=settings())
    again = compare(tiny, tmp_path, settings=settings())
    assert again == first and in_process == [4, 0]
    assert Study.open(tmp_path).file.looks == (2,)

    more = compare(tiny, tmp_path, settings=settings(seeds=3, arms=("uniform", "prism", "reversed")))
    assert in_process == [4, 0, 5]
    assert more["arms"]["uniform"]["val_loss"][:2] == first["arms"]["uniform"]["val_loss"]
    assert (more["endpoint"]["look"], more["endpoint"]["looks"]) == (2, [2, 3])
    assert more["differences"]["prism"]["confidence"] > first["differences"]["prism"]["confidence"]
    assert Study.open(tmp_path).file.looks == (2, 3)


def test_an_unfinished_study_is_judged_as_far_as_it_is_and_is_no_look(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path)
    none = conclude(study)
    assert none["arms"]["prism"]["val_loss"] == [None, None]
    assert none["verdict"]["decision"] == "cannot_tell" and "not finished" in none["verdict"]["text"]
    assert Study.open(tmp_path).file.looks == ()


def test_a_study_that_another_process_extended_is_judged_as_it_is_now(begin: Begin, finished: Study) -> None:
    begin(finished.folder, seeds=3)
    results = conclude(finished)
    assert results["endpoint"]["planned_seeds"] == 3
    assert results["arms"]["prism"]["val_loss"][2] is None
    assert Study.open(finished.folder).file.looks == (2,), "the third seed may have been asked for because of the two"
    assert results["endpoint"]["look"] == 2


def test_an_extension_that_showed_nothing_new_is_no_look(begin: Begin, finished: Study) -> None:
    """Two seeds were judged; a third was asked for and not begun, and then a fourth."""
    finished.looked()
    begin(finished.folder, seeds=3)
    assert begin(finished.folder, seeds=4).file.looks == (2,)


def test_more_seeds_before_any_pair_is_there_are_no_look(begin: Begin, tmp_path: Path) -> None:
    begin(tmp_path)
    assert begin(tmp_path, seeds=3).file.looks == ()


def test_diverged_runs_are_null_and_named(tiny: Recipe, tmp_path: Path, in_process: list[int]) -> None:
    wild = replace(tiny, optimizer=replace(tiny.optimizer, lr=1e9))
    results = compare(wild, tmp_path, settings=settings(calibrate=True))
    assert results["arms"]["uniform"]["val_loss"] == results["arms"]["prism"]["val_loss"] == [None, None]
    assert results["arms"]["prism"]["status"] == ["diverged", "diverged"]
    assert results["differences"]["prism"]["n"] == 0
    assert "diverged: prism seed 0" in results["verdict"]["text"]
    assert compare(wild, tmp_path, settings=settings(calibrate=True)) == results
    assert in_process == [8, 0]


def test_several_learning_rates_and_the_calibration(tiny: Recipe, tmp_path: Path, in_process: list[int]) -> None:
    results = compare(tiny, tmp_path, settings=settings(lr=(1e-3, 1e-2), calibrate=True))
    assert in_process == [2 * 2 * 4]
    assert results["learning_rates"]["rates"] == [1e-3, 1e-2]
    assert results["calibration"]["arms"] == ["fewer-tokens", "other-seed"]
    assert results["arms"]["fewer-tokens"]["tokens"] == 512
    # at most one of both rates is the arm's loss, the better one
    of_rate = [
        json.loads(p.read_text().splitlines()[-1])["val_loss"] for p in tmp_path.glob("runs/prism/*/seed-0/*.jsonl")
    ]
    assert len(of_rate) == 2 and results["arms"]["prism"]["val_loss"][0] == min(of_rate)


def test_every_problem_is_found_before_anything_is_written(tiny: Recipe, tmp_path: Path) -> None:
    bad = replace(with_training(tiny, micro_batch=3), device=DeviceSettings(device="cuda:99"))
    with pytest.raises(InputError) as caught:
        compare(bad, tmp_path / "study", settings=settings(seeds=0, arms=("prsm",)))
    found = "\n".join(caught.value.problems)
    for part in ("seeds=0", "is no multiple of context x micro_batch", "device=cuda:99 is not here", "arm 'prsm'"):
        assert part in found
    assert not (tmp_path / "study").exists()


def test_one_step_cannot_be_calibrated(tiny: Recipe, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="calibrate needs 2 steps"):
        compare(with_training(tiny, tokens=64), tmp_path / "study", settings=settings(calibrate=True))


def test_weights_that_are_given_cannot_be_drawn_from_another_seed(tiny: Recipe, tmp_path: Path) -> None:
    given = with_model(tiny, from_run="runs/first")
    with pytest.raises(InputError, match="another initial seed would be the same run again"):
        compare(given, tmp_path / "study", settings=settings(calibrate=True))


def test_text_that_is_too_short_leaves_nothing_in_the_way_of_the_corrected_call(
    tiny: Recipe, text: Path, tmp_path: Path, in_process: list[int]
) -> None:
    (tmp_path / "short.txt").write_text("one two")
    short = replace(tiny, data=replace(tiny.data, paths=(str(tmp_path / "short.txt"),)))
    with pytest.raises(InputError, match="window of context 16 takes 17"):
        compare(short, tmp_path / "study", settings=settings())
    assert not (tmp_path / "study").exists()
    compare(tiny, tmp_path / "study", settings=settings(seeds=1))
    assert in_process == [2]


def test_prepared_text_of_others_is_left_where_it_is_too_short(tiny: Recipe, begin: Begin, tmp_path: Path) -> None:
    begin(tmp_path / "first")
    prepared = replace(tiny, data=replace(tiny.data, paths=(str(tmp_path / "first/data"),)))
    long = replace(
        prepared,
        model=replace(tiny.model, context=8192),
        training=replace(tiny.training, tokens=81920, tokens_per_step=8192, micro_batch=1),
    )
    with pytest.raises(InputError, match="context 8192 takes 8,193"):
        compare(long, tmp_path / "second", settings=settings())
    assert Study.open(tmp_path / "first").open_corpus()
