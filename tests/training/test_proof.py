"""`verify`: a piece of a run trained again is the same, and where it is not, the first difference is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from prism_transformer.errors import InputError
from prism_transformer.files import read_json
from prism_transformer.settings import to_yaml
from prism_transformer.training.proof import line_differences, tensor_differences, verify
from prism_transformer.training.recipe import with_training
from prism_transformer.training.run_lock import locked

from .runs import STEPS, quiet, run, tensors


@pytest.fixture(scope="module")
def finished(recipe, corpus, tmp_path_factory) -> tuple:
    """24 steps with the checkpoints of steps 10, 20 and 24, that read a prepared text."""
    from dataclasses import replace

    settings = replace(recipe, data=replace(recipe.data, paths=(str(corpus.folder),), tokenizer="bytes"))
    settings = with_training(settings, keep_every=10, keep=1)
    out = tmp_path_factory.mktemp("proof") / "run"
    run(settings, out, corpus)
    return settings, out


@pytest.fixture
def copy(finished, tmp_path):
    return finished[0], Path(shutil.copytree(finished[1], tmp_path / "run"))


def test_a_run_is_proved_and_left_as_it_is(copy):
    settings, out = copy
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"}
    said: list[str] = []
    proof = verify(settings, out, say=said.append)
    assert proof.holds
    assert (proof.first_step, proof.last_step) == (20, 24)
    assert said == ["training steps 21 to 24 again, twice"]
    one, other = proof.comparisons
    assert (one.lines, other.lines) == (1, 1)  # step 24; lines come every 5 steps
    assert one.tensors == other.tensors == len(tensors(out)) > 60
    after = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"}
    assert after == before


def test_a_run_with_one_checkpoint_is_proved_from_its_start(copy):
    settings, out = copy
    for step in (20, 24):
        shutil.rmtree(out / "checkpoints" / f"step-{step:06d}")
    (out / "checkpoints" / "latest").write_text("step-000010")
    proof = verify(settings, out, say=quiet)
    assert proof.holds and (proof.first_step, proof.last_step) == (0, 10)
    assert proof.comparisons[1].lines == 3  # of steps 1, 5 and 10


def test_a_run_that_went_on_to_a_longer_horizon_is_proved(copy, corpus):
    """Its older checkpoint is of the shorter recipe, which the run has accepted."""
    settings, out = copy
    longer = with_training(settings, tokens=30 * 64, keep=2)
    run(longer, out, corpus, allow=["horizon", "recipe"])
    proof = verify(longer, out, say=quiet)
    assert proof.holds and (proof.first_step, proof.last_step) == (24, 30)


def test_other_data_another_loss_and_another_weight_are_found_and_named(copy):
    settings, out = copy
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    (at,) = [i for i, record in enumerate(records) if record["step"] == 24 and "loss" in record]
    records[at] |= {"loss": records[at]["loss"] + 1e-7, "batches": "0" * 16}
    (out / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = out / "checkpoints" / "step-000024" / "optimizer.safetensors"
    changed = load_file(path)
    changed["model.norm.weight:exp_avg"][3] += 0.5
    save_file(changed, path)
    proof = verify(settings, out, say=quiet)
    assert not proof.holds
    repetitions, with_run = proof.comparisons
    assert repetitions.differences == ()
    line, tensor = with_run.differences
    assert line.startswith("first in the line of step 24: batches 0000000000000000 and ") and ", loss " in line
    total = len(changed) + len(load_file(path.with_name("model.safetensors")))
    assert tensor == f"1 of {total} tensors differ, first model.norm.weight:exp_avg by at most 0.5"


def test_repetitions_that_differ_are_told(copy, monkeypatch):
    """Training that depends on what nobody saved: each session's first step has a random learning rate."""
    from prism_transformer.training import session

    settings, out = copy
    rate = session.set_learning_rate
    monkeypatch.setattr(
        session, "set_learning_rate", lambda optimizer, lr: rate(optimizer, lr * (1 + float(torch.rand(()))))
    )
    repetitions, _ = verify(settings, out, say=quiet).comparisons
    assert "tensors differ" in repetitions.differences[-1]


def test_lines_and_tensors_that_only_one_has():
    assert line_differences([{"step": 1}], []) == ["1 line against 0"]
    assert line_differences([{"step": 1}], [{"step": 2}]) == ["a line of step 1 against one of step 2"]
    one = {"a": torch.zeros(2), "b": torch.zeros(2)}
    assert tensor_differences(one, {"a": torch.zeros(2)}) == ["1 tensors differ, first b: only one has it"]


def test_a_run_without_a_checkpoint_has_nothing_to_compare_with(tmp_path, finished):
    settings, _ = finished
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(to_yaml(settings))
    with pytest.raises(InputError, match="has no checkpoint yet"):
        verify(settings, tmp_path / "run", say=quiet)


def test_a_run_that_is_being_trained_is_not_touched(copy):
    settings, out = copy
    with locked(out), pytest.raises(InputError, match="is in use by process"):
        verify(settings, out, say=quiet)
    assert not (out / ".verify").exists()
    assert read_json(out / "checkpoints" / f"step-{STEPS:06d}" / "state.json")["step"] == STEPS
