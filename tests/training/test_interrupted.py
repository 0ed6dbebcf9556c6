"""A run that is stopped while it evaluates, killed at random, out of disk, or found with half a checkpoint."""

import errno
import os
import random
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from prism_transformer.errors import InputError, RunError, Stopped
from prism_transformer.training import session, state
from prism_transformer.training.loop import train
from prism_transformer.training.metrics import read_metrics
from prism_transformer.training.recipe import with_training
from prism_transformer.training.state import RunFolder

from . import soak
from .conftest import make_corpus
from .runs import assert_same_run, at_step, quiet, records, run

# Stopped in an evaluation


@pytest.mark.parametrize(("evaluation", "step"), [(2, 12), (4, 24)])
def test_a_signal_in_an_evaluation_is_heeded_before_its_next_batch(
    tmp_path, recipe, corpus, monkeypatch, unbroken, evaluation, step
):
    """Saved at once, without the line; the evaluation is made when the run goes on. The fourth one is the last."""
    out = tmp_path / "run"
    measure, batches, calls = session.token_losses, [], []

    def signalled(*arguments, before_batch, **options):
        calls.append(1)

        def before() -> None:
            batches.append(len(calls))
            if len(calls) == evaluation and batches.count(evaluation) == 1:
                signal.raise_signal(signal.SIGTERM)
            before_batch()

        return measure(*arguments, before_batch=before, **options)

    monkeypatch.setattr(session, "token_losses", signalled)
    with pytest.raises(Stopped, match=f"stopped at step {step} of 24, saved"):
        run(recipe, out, corpus)
    assert batches.count(evaluation) == 1  # no batch after the signal
    assert RunFolder(out).latest().name == f"step-{step:06d}"
    assert records(out)[-1]["step"] == (10 if step == 12 else 24) and "loss" in records(out)[-1]
    monkeypatch.undo()
    run(recipe, out, corpus)
    assert_same_run(out, unbroken)


@pytest.mark.parametrize(("step", "state"), [(0, "nothing to save; the same command starts again"), (7, "saved; the")])
def test_what_is_said_of_a_stop(step, state):
    """Before the first step is whole, as while layers are compiled, there is nothing to save."""
    stopped = SimpleNamespace(step=step, saved_step=step, recipe=SimpleNamespace(steps=24))
    with pytest.raises(Stopped, match=f"stopped at step {step} of 24, {state}"):
        session.Session.stop(stopped, signal.SIGTERM)


# Killed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_killed_at_five_random_moments_it_is_always_loadable_and_exact(tmp_path, recipe, corpus):
    """The long form, with 100 moments, is soak.py."""
    recipe = with_training(recipe, tokens=120 * 64, save_minutes=1e-4, log_every=7)
    run(recipe, tmp_path / "alone", corpus)
    draw = random.Random(3)
    killed = soak.soak(recipe, tmp_path / "killed", corpus, moments=5, draw=draw, longest=0.5)
    run(recipe, tmp_path / "killed", corpus)
    assert killed >= 3
    assert_same_run(tmp_path / "killed", tmp_path / "alone")


def test_the_lock_of_a_dead_process_is_taken_over_and_told(tmp_path, recipe, corpus):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock-owner").write_text("process 7 on node3")
    said: list[str] = []
    train(with_training(recipe, tokens=64), tmp_path / "run", corpus=corpus, say=said.append)
    assert said[0] == f"{tmp_path / 'run'}: taken over from process 7 on node3, which has ended"


# Half a checkpoint


@pytest.fixture
def stopped(tmp_path, logged, corpus) -> Path:
    """Stopped at steps 4 and 8."""
    for step in (4, 8):
        with pytest.raises(Stopped):
            run(logged, tmp_path / "run", corpus, on_record=at_step(step, lambda: signal.raise_signal(signal.SIGTERM)))
    return tmp_path / "run"


def test_half_a_checkpoint_is_skipped_and_told(stopped, logged, corpus, unbroken_logged):
    """Left by a killed save, copied in part, and named by `latest` although its mark is gone."""
    checkpoints = stopped / "checkpoints"
    (checkpoints / ".step-000011.tmp").mkdir()
    (checkpoints / "step-000009").mkdir()
    (checkpoints / "step-000008" / "state.json").unlink()
    said: list[str] = []
    train(logged, stopped, corpus=corpus, say=said.append)
    for name in (".step-000011.tmp", "step-000008", "step-000009"):
        assert f"{checkpoints / name} is not complete (it has no state.json yet) and is skipped" in said
    assert f"going on from {checkpoints / 'step-000004'}" in said
    assert_same_run(stopped, unbroken_logged)


def test_without_the_name_of_the_newest_checkpoint_the_run_goes_on_from_it(stopped, logged, corpus, unbroken_logged):
    """Killed between a checkpoint and `latest`, or copied without it."""
    (stopped / "checkpoints" / "latest").unlink()
    said: list[str] = []
    train(logged, stopped, corpus=corpus, say=said.append)
    assert f"going on from {stopped / 'checkpoints' / 'step-000008'}" in said
    assert_same_run(stopped, unbroken_logged)


def test_where_no_checkpoint_is_whole_the_run_is_refused_and_not_started_again(stopped, logged, corpus):
    for step in (4, 8):
        (stopped / "checkpoints" / f"step-{step:06d}" / "state.json").unlink()
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"step-000008/state\.json cannot be read"):
        run(logged, stopped, corpus)
    assert (stopped / "metrics.jsonl").read_bytes() == before


# Edited


def test_an_edited_recipe_is_refused_with_both_values(stopped, logged, corpus):
    """recipe.yaml of the run was edited by hand, and the command says the same."""
    from prism_transformer.training.recipe_files import load_recipe

    path = stopped / "recipe.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 5"))
    with pytest.raises(InputError, match=r"(?s)training\.seed: 0 -> 5.*add --allow recipe"):
        run(load_recipe(path).recipe, stopped, corpus)


def test_a_changed_horizon_is_refused_or_accepted_noted_and_followed(stopped, logged, corpus):
    from prism_transformer.training.optimizer import learning_rate

    longer = with_training(logged, tokens=30 * 64)
    with pytest.raises(InputError, match=r"(?s)training\.tokens: 1536 -> 1920.*add --allow horizon"):
        run(longer, stopped, corpus)
    final = run(longer, stopped, corpus, allow=["horizon"])
    assert final["step"] == 30
    assert {"step": 8, "tokens": 512, "changed": ["training.tokens: 1536 -> 1920"]} in records(stopped)
    rates = {line["step"]: line["lr"] for line in records(stopped) if "lr" in line}
    assert rates[8] == learning_rate(7, 24, logged.optimizer) and rates[9] == learning_rate(8, 30, logged.optimizer)
    run(longer, stopped, corpus)  # it is its own recipe now
    with pytest.raises(InputError, match=r"step-000030 is beyond the 20 steps of this recipe; give more tokens"):
        run(with_training(logged, tokens=20 * 64), stopped, corpus, allow=["horizon"])
    assert run(longer, stopped, corpus)["step"] == 30  # the refused one has left no trace


def test_an_accepted_change_of_a_finished_run_is_not_written_into_its_recipe(tmp_path, short, corpus):
    from dataclasses import replace

    run(short, tmp_path / "run", corpus)
    before = (tmp_path / "run" / "recipe.yaml").read_bytes()
    other = replace(short, optimizer=replace(short.optimizer, lr=0.5))
    assert run(other, tmp_path / "run", corpus, allow=["recipe"])["step"] == 8
    assert (tmp_path / "run" / "recipe.yaml").read_bytes() == before


def test_a_finished_run_goes_on_to_a_longer_horizon(tmp_path, short, corpus):
    run(short, tmp_path / "run", corpus)
    final = run(with_training(short, tokens=12 * 64), tmp_path / "run", corpus, allow=["horizon"])
    assert final["step"] == 12 and final["final"]


def test_weights_go_on_under_an_accepted_schedule(stopped, logged, corpus):
    from dataclasses import replace

    from prism_transformer.checkpoint import load_model

    other = replace(logged, model=replace(logged.model, schedule="2x1,4x1"))
    with pytest.raises(InputError, match=r"(?s)model\.schedule: 1x1,4x1 -> 2x1,4x1.*add --allow schedule"):
        run(other, stopped, corpus)
    assert run(other, stopped, corpus, allow=["schedule"])["final"]
    assert str(load_model(RunFolder(stopped).latest()).config.head_schedule) == "2x1,4x1"


def test_accepted_data_go_on_at_the_same_step(tmp_path, stopped, logged, corpus):
    other = make_corpus(tmp_path / "other", seed=7)
    with pytest.raises(InputError) as caught:
        run(logged, stopped, other)
    assert f"data.fingerprint: {corpus.fingerprint} -> {other.fingerprint}" in str(caught.value)
    assert "shard train_000000.bin is another one" in str(caught.value) and "--allow data" in str(caught.value)
    assert run(logged, stopped, other, allow=["data"])["step"] == 24


def test_other_golden_logits_are_refused_or_accepted(stopped, logged, corpus, monkeypatch):
    from prism_transformer import checkpoint

    answers = checkpoint.golden_logits
    monkeypatch.setattr(checkpoint, "golden_logits", lambda model: answers(model) + 0.01)
    with pytest.raises(InputError) as caught:
        run(logged, stopped, corpus)
    assert "golden logits differ by 0.01 (tolerance 0.001)" in str(caught.value)
    assert caught.value.problems[-1] == "to go on with it all the same, add --allow golden"
    assert run(logged, stopped, corpus, allow=["golden"])["final"]


# Out of disk


def test_a_failed_save_removes_older_checkpoints_and_is_tried_again(
    tmp_path, short, corpus, monkeypatch, unbroken_short
):
    """There is room for one and a half checkpoints more than the newest."""
    write, failures, said = state.save_model, [], []

    def no_room(model, folder, *, origin):
        if len(list(folder.parent.glob("step-*"))) > 2:
            failures.append(origin["step"])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(model, folder, origin=origin)

    monkeypatch.setattr(state, "save_model", no_room)
    keeping = with_training(short, keep=5)
    train(keeping, tmp_path / "run", corpus=corpus, say=said.append)
    assert failures == [4, 6, 8]
    assert sum(line.startswith("warning: ") and "removed step-" in line for line in said) == 3
    assert any("removed step-000001, step-000002, trying again" in line for line in said)
    assert records(tmp_path / "run") == records(unbroken_short)
    assert RunFolder(tmp_path / "run").latest().name == "step-000008"


def mounted(folder: Path, n_bytes: int) -> str | None:
    """Mount a file system of its own there; why not, where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or None if done.returncode else None


def test_a_real_file_system_of_50_megabytes(tmp_path, recipe, corpus):
    """Room for the newest checkpoint and one more of 21 MB each, where 2 are kept and a third is written."""
    from dataclasses import replace

    from prism_transformer.checkpoint import load_model

    disk = tmp_path / "disk"
    if reason := mounted(disk, 50_000_000):
        pytest.skip(f"no file system can be mounted here ({reason}); ENOSPC is injected in the tests beside this one")
    try:
        wide = replace(recipe.model, layers=2, d_model=256, heads=4, schedule="1x1,4x1")
        wide = replace(with_training(recipe, tokens=6 * 64, save_minutes=1e-9, evaluations=1), model=wide)
        said: list[str] = []
        final = train(wide, disk / "run", corpus=corpus, say=said.append)
        assert final["final"] and final["step"] == 6
        assert any("but up to 3 lie there at a time" in line for line in said)
        assert any("was not written" in line and "removed step-" in line for line in said)
        load_model(RunFolder(disk / "run").latest())
        with pytest.raises(RunError, match="no space left on the disk"):
            run(wide, disk / "second", corpus)
        load_model(RunFolder(disk / "run").latest())
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# What else leaves training as it is


def test_names_and_numbers_of_a_compiled_model_are_those_of_a_plain_one(tmp_path, short, corpus, monkeypatch):
    """In place, layer by layer; the backend that only captures graphs compiles fast."""
    from dataclasses import replace

    from prism_transformer.training.build import compile_layers, new_model

    compile_it = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module: compile_it(module, backend="eager"))
    plain = new_model(short, corpus)
    for sharded in (False, True):
        model = new_model(short, corpus)
        compile_layers(model, sharded=sharded)
        assert list(model.state_dict()) == list(plain.state_dict())
        model.load_state_dict(plain.state_dict())
    two = replace(with_training(short, tokens=2 * 64), device=replace(short.device, compile=True))
    plainly = replace(two, device=replace(two.device, compile=False))
    run(two, tmp_path / "compiled", corpus)
    run(replace(two, device=replace(two.device, recompute=True)), tmp_path / "recomputed", corpus)
    run(plainly, tmp_path / "plain", corpus)
    for name in ("compiled", "recomputed"):
        for a, b in zip(records(tmp_path / name), records(tmp_path / "plain"), strict=True):
            assert {k: v for k, v in a.items() if k != "batches"} == pytest.approx(
                {k: v for k, v in b.items() if k != "batches"}, rel=1e-5
            )
    with pytest.raises(InputError, match=r"device\.compile: True -> False"):
        train(plainly, tmp_path / "compiled", corpus=corpus, say=quiet)


def test_the_time_that_saving_takes_is_measured(tmp_path, short, corpus):
    final = run(short, tmp_path / "run", corpus)
    assert 0 < final["save_seconds"] < 60
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["save_seconds"] == final["save_seconds"]
