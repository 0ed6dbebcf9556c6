"""The study folder: fixed before the first run, extended by more seeds or arms and by nothing else."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_transformer.errors import InputError
from prism_transformer.files import STUDY
from prism_transformer.study.folder import Study
from prism_transformer.study.plan import RunKey
from prism_transformer.training.recipe import DataSettings, Recipe, with_model, with_training

Begin = Callable[..., Study]


def changed(begin: Begin, folder: Path, **changes: Any) -> str:
    """The refusal of a study in `folder` with other settings, which must leave study.yaml as it was."""
    before = (folder / STUDY).read_bytes()
    with pytest.raises(InputError) as caught:
        begin(folder, **changes)
    assert (folder / STUDY).read_bytes() == before
    return str(caught.value)


def write_metrics(study: Study, run: RunKey, *records: dict[str, Any]) -> None:
    folder = study.run_folder(run)
    folder.mkdir(parents=True)
    base = {"tokens": 0, "seconds": 0.0}
    lines = [json.dumps({"step": step, **base, **record}) for step, record in enumerate(records, start=1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_what_is_written_is_what_is_read(begin: Begin, tmp_path: Path) -> None:
    written = begin(tmp_path, arms=("uniform", "prism@rope_width=base", "mine=2x2"), lr=(1e-3, 3e-3), calibrate=True)
    read = Study.open(tmp_path)
    assert (read.file, read.arms, read.runs) == (written.file, written.arms, written.runs)
    assert [arm.role for arm in read.arms] == [
        *("baseline", "primary", "secondary"),
        *("calibration_less", "calibration_null"),
    ]


def test_each_run_has_a_folder_of_its_own(begin: Begin, tmp_path: Path) -> None:
    one_rate = begin(tmp_path / "one", seeds=3)
    assert one_rate.run_folder(RunKey("prism", 2, 3e-3)) == tmp_path / "one/runs/prism/seed-2"
    near = begin(tmp_path / "two", lr=(1e-3, 1.0000001e-3))  # equal in six digits
    folders = [near.run_folder(run) for run in near.runs]
    assert len(set(folders)) == len(folders) == 2 * 2 * 2
    assert tmp_path / "two/runs/prism/lr-0.001/seed-0" in folders


def test_the_seeds_start_at_the_recipes(begin: Begin, tiny: Recipe, tmp_path: Path) -> None:
    study = begin(tmp_path, recipe=with_training(tiny, seed=7), seeds=2)
    assert study.seeds == [7, 8]
    assert study.run_recipe(RunKey("prism", 8, 3e-3)).training.seed == 8


def test_more_seeds_and_arms_extend(begin: Begin, tmp_path: Path) -> None:
    old = begin(tmp_path, seeds=2)
    assert begin(tmp_path, seeds=2).runs == old.runs
    new = begin(tmp_path, seeds=3, arms=("uniform", "prism", "reversed"), calibrate=True, jobs=2)
    assert set(old.runs) < set(new.runs)
    assert new.file.created == old.file.created
    assert Study.open(tmp_path).runs == new.runs


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seeds": 1}, "study.seeds: 2 -> 1 (only more are possible)"),
        ({"lr": (1e-3,)}, "study.lr: [] -> [0.001]"),
        ({"confidence": 0.9}, "study.confidence: 0.95 -> 0.9"),
        ({"arms": ("uniform", "reversed")}, "arms: prism is missing"),
        ({"arms": ("uniform", "prism=4x1,2x1")}, "arms: prism: 1x1,4x1 -> 4x1,2x1"),
        ({"arms": ("prism=1x1,4x1@rope_width=base",)}, "arms: prism: 1x1,4x1 -> 1x1,4x1 rope_width=base"),
        ({"arms": ("prism", "reversed"), "primary": "reversed"}, "study.primary: prism -> reversed"),
    ],
)
def test_anything_else_is_refused_and_named(begin: Begin, tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    begin(tmp_path, seeds=2)
    message = changed(begin, tmp_path, **({"seeds": 2} | changes))
    assert named in message and "use another folder (--out)" in message


def test_all_that_differs_is_named_at_once(begin: Begin, tiny: Recipe, tmp_path: Path) -> None:
    begin(tmp_path, seeds=2)
    other = replace(
        with_training(with_model(tiny, rope_theta=500.0), tokens=1280), optimizer=replace(tiny.optimizer, lr=1e-4)
    )
    message = changed(begin, tmp_path, recipe=other, seeds=1)
    for line in (
        "recipe.model.rope_theta: 10000.0 -> 500.0",
        "recipe.training.tokens: 640 -> 1280",
        "recipe.optimizer.lr: 0.003 -> 0.0001",
        "study.seeds: 2 -> 1",
    ):
        assert line in message


def test_other_text_is_refused_and_the_same_text_elsewhere_is_not(begin: Begin, tiny: Recipe, tmp_path: Path) -> None:
    begin(tmp_path / "study")
    (tmp_path / "other.txt").write_text("another text altogether " * 200)
    other = replace(tiny, data=replace(tiny.data, paths=(str(tmp_path / "other.txt"),)))
    assert "other.txt was not read then" in changed(begin, tmp_path / "study", recipe=other)

    prepared = replace(tiny, data=DataSettings(paths=(str(tmp_path / "study/data"),), tokenizer="bytes"))
    assert begin(tmp_path / "elsewhere", recipe=prepared).open_corpus().folder == tmp_path / "study/data"
    assert begin(tmp_path / "study", recipe=prepared).open_corpus().folder == tmp_path / "study/data"


def test_the_primary_arm_stays_the_one_before_the_first_run(begin: Begin, tmp_path: Path) -> None:
    begin(tmp_path, arms=("uniform", "reversed"))
    new = begin(tmp_path, arms=("uniform", "reversed", "prism"))  # of which a new study would take prism
    assert {arm.name: arm.role for arm in new.arms} == {
        "uniform": "baseline",
        "reversed": "primary",
        "prism": "secondary",
    }
    assert begin(tmp_path, arms=("reversed", "prism"), primary="reversed").primary == "reversed"


def test_a_study_of_its_ruler_alone_takes_a_primary_arm_later(begin: Begin, tmp_path: Path) -> None:
    assert begin(tmp_path, arms=("uniform",), calibrate=True).primary is None
    assert begin(tmp_path, arms=("uniform", "prism"), calibrate=True).primary == "prism"


def test_a_look_is_recorded_beside_an_extension_by_another_process(begin: Begin, tmp_path: Path) -> None:
    mine = begin(tmp_path, seeds=2)
    begin(tmp_path, seeds=5)  # by another process, meanwhile
    mine.looked()
    mine.looked()
    now = Study.open(tmp_path)
    assert (now.file.study.seeds, now.file.looks, now.endpoint().look) == (5, (2,), 2)


def test_results_are_read_from_the_metrics(begin: Begin, tmp_path: Path) -> None:
    study = begin(tmp_path, seeds=2)
    done, diverged, begun, untouched = study.runs
    loss = {"loss": 5.0, "tokens_per_second": 100.0}
    write_metrics(
        study,
        done,
        loss,
        {"val_loss": 4.0, "tokens": 320, "seconds": 2.0},
        loss | {"tokens_per_second": 300.0},
        loss | {"tokens_per_second": 400.0},
        {"val_loss": 3.5, "val_bits_per_byte": 2.1, "tokens": 640, "seconds": 4.0, "final": True},
    )
    write_metrics(study, diverged, loss, {"diverged": True, "tokens": 64})
    write_metrics(study, begun, loss, {"val_loss": 4.0})

    result = study.result(done)
    assert (result.status, result.val_loss, result.tokens, result.lr) == ("done", 3.5, 640, 3e-3)
    assert result.curve == [(2, 320, 2.0, 4.0, False), (5, 640, 4.0, 3.5, True)], "on a sample, and on the whole split"
    assert result.tokens_per_second in (300.0, 400.0), "the first window holds the start of the process"
    assert (tmp_path / result.source).exists()
    assert [study.status(run) for run in (diverged, begun, untouched)] == ["diverged", "pending", "pending"]
    assert [study.result(run).val_loss for run in (diverged, begun, untouched)] == [None] * 3
    assert study.result(diverged).tokens == 64


def test_a_folder_that_is_no_study(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"is no study: it has no study\.yaml"):
            Study.open(folder)


def edit(path: Path, *keys: str, value: Any = None) -> None:
    """Set, or with None remove, one value of a YAML file."""
    content = yaml.safe_load(path.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner.pop(keys[-1]) if value is None else inner.__setitem__(keys[-1], value)
    path.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("format",), "prism-transformer study 9", "format 'prism-transformer study 9' is not known"),
        (("recipe",), None, "recipe is missing"),
        (("data_fingerprint",), None, "data_fingerprint is missing"),
        (("seeds",), 3, "no setting 'seeds'; it belongs in study, as study.seeds"),
        (("study", "seeds"), 0, "seeds=0"),
        (("recipe", "training", "tokens_per_step"), 63, "tokens_per_step=63 is no multiple"),
        (("recipe", "model", "heads"), 5, "heads[0..1]=5 does not divide d_model=16"),
        (("arms",), None, "has no arms"),
        (("arms",), [], "has no arms"),
        (("arms",), {}, "0 baselines"),
        (("arms", "prism", "heads"), "5x2", "arms.prism: heads[0..1]=5 does not divide d_model=16"),
        (("arms", "prism", "heads"), "4x3", "arms.prism: 3 head counts for 2 layers"),
        (("arms", "prism", "heads"), None, "arms.prism: 'heads' is missing"),
        (("arms", "prism", "role"), "first", "arms.prism: role 'first' is none of baseline"),
        (("arms", "prism", "role"), "baseline", "2 baselines and 0 primary"),
        (("arms", "prism", "settings"), {"layers": 3}, "arms.prism: settings: layers=3 is none of an arm"),
        (("arms", "prism", "settings"), [1], "arms.prism"),
        (("arms", "prism"), 5, "arms.prism"),
        (("arms", "../up"), {"heads": "4x2", "role": "secondary", "settings": {}}, "arms.../up: no name of an arm"),
    ],
)
def test_an_edited_study_is_refused_by_name(
    begin: Begin, tmp_path: Path, keys: tuple[str, ...], value: Any, message: str
) -> None:
    begin(tmp_path)
    edit(tmp_path / STUDY, *keys, value=value)
    with pytest.raises(InputError) as caught:
        Study.open(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / STUDY) in str(caught.value)


def test_a_study_file_that_is_cut_is_refused(begin: Begin, tmp_path: Path) -> None:
    begin(tmp_path)
    whole = (tmp_path / STUDY).read_text()
    for part in ("", whole[: len(whole) // 2], "a: [", "- a"):
        (tmp_path / STUDY).write_text(part)
        with pytest.raises(InputError):
            Study.open(tmp_path)


def test_text_that_was_replaced_is_refused(begin: Begin, tiny: Recipe, tmp_path: Path) -> None:
    study = begin(tmp_path / "study")
    (tmp_path / "other.txt").write_text("another text altogether " * 200)
    begin(tmp_path / "other", recipe=replace(tiny, data=replace(tiny.data, paths=(str(tmp_path / "other.txt"),))))
    study.open_corpus()
    (tmp_path / "study/data").rename(tmp_path / "moved")
    (tmp_path / "other/data").rename(tmp_path / "study/data")
    with pytest.raises(InputError, match=r"is not the text that the study .* began with"):
        study.open_corpus()


def test_the_frame_has_a_row_for_each_evaluation(begin: Begin, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    study = begin(tmp_path)
    first, second = study.runs[:2]
    assert len(study.frame()) == 0
    write_metrics(study, first, {"loss": 5.0}, {"val_loss": 4.5}, {"val_loss": 4.0, "val_tokens": 9, "final": True})
    write_metrics(study, second, {"val_loss": 4.25})
    frame = study.frame()
    assert list(frame.columns) == ["arm", "heads", "seed", "lr", "step", "tokens", "seconds", "val_loss", "final"]
    assert frame.val_loss.tolist() == [4.5, 4.0, 4.25]
    assert frame.final.tolist() == [False, True, False]
    assert frame.arm.tolist() == [first.arm, first.arm, second.arm]
    schedules = {arm.name: str(arm.schedule) for arm in study.arms}
    assert frame.heads.tolist() == [schedules[name] for name in frame.arm]


def test_the_frame_says_that_pandas_is_missing(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        begin(tmp_path).frame()
