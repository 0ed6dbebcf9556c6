"""Stopped and gone on with: bit for bit the run that never stopped."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prism_transformer.errors import Stopped
from prism_transformer.settings import to_yaml
from prism_transformer.training import session
from prism_transformer.training.loop import train
from prism_transformer.training.metrics import read_metrics
from prism_transformer.training.recipe import with_training
from prism_transformer.training.run_lock import locked
from prism_transformer.training.signals import stop_signals
from prism_transformer.training.state import RunFolder

from .runs import STEPS, assert_same_run, at_step, quiet, records, run


class KilledError(BaseException):
    """Nothing below catches it, as nothing catches kill -9."""


def kill() -> None:
    raise KilledError


def send(number: int):
    return lambda: signal.raise_signal(number)


def until(step: int, recipe, out: Path, corpus, number: int = signal.SIGTERM) -> Stopped:
    """Run until a signal comes at `step`."""
    with pytest.raises(Stopped) as caught:
        run(recipe, out, corpus, on_record=at_step(step, send(number)))
    return caught.value


def test_the_text_is_read_more_than_twice(corpus):
    """So that the stops below lie before, on and after the edge of an epoch, and batches cross it."""
    windows = (len(corpus.split("train")) - 1) // 16
    assert 2 < STEPS * 4 / windows < 3
    assert windows % 4


@pytest.mark.parametrize("step", [1, 4, 10, 11, 23, 24])
def test_stopped_at_a_step_and_gone_on_with(tmp_path, logged, corpus, unbroken_logged, step):
    out = tmp_path / "run"
    stopped = until(step, logged, out, corpus) if step < STEPS else None
    if stopped:
        assert str(stopped) == f"stopped at step {step} of 24, saved; the same command goes on"
        assert RunFolder(out).latest().name == f"step-{step:06d}"
    final = run(logged, out, corpus)
    assert final["step"] == STEPS
    assert_same_run(out, unbroken_logged)


def test_stopped_twice_in_a_row_and_gone_on_with(tmp_path, logged, corpus, unbroken_logged):
    out = tmp_path / "run"
    for step in (3, 9, 10, 20):
        until(step, logged, out, corpus)
    run(logged, out, corpus)
    assert_same_run(out, unbroken_logged)


def test_stopped_between_two_lines_of_metrics_the_lines_are_those_of_the_unbroken_run(
    tmp_path, recipe, corpus, unbroken
):
    """Lines come every 5 steps; each is the mean over steps on both sides of the stop (evaluation at 6 stops it)."""
    out = tmp_path / "run"
    until(6, recipe, out, corpus)
    until(12, recipe, out, corpus)
    run(recipe, out, corpus)
    assert_same_run(out, unbroken)


def test_stopped_in_the_middle_of_a_step(tmp_path, logged, corpus, monkeypatch, unbroken_logged):
    """Between two micro-batches: the gradients so far are thrown away, and the whole step is done again."""
    out = tmp_path / "run"
    calls = []
    backward = torch.Tensor.backward

    def stop_at_ninth(*arguments, **options):
        calls.append(1)
        if len(calls) == 9:  # the first of the 2 micro-batches of step 5
            signal.raise_signal(signal.SIGTERM)
        return backward(*arguments, **options)

    monkeypatch.setattr(torch.Tensor, "backward", stop_at_ninth)
    with pytest.raises(Stopped, match="stopped at step 4 of 24"):
        run(logged, out, corpus)
    assert len(calls) == 9
    monkeypatch.undo()
    run(logged, out, corpus)
    assert_same_run(out, unbroken_logged)


def test_killed_it_goes_on_from_its_checkpoint_and_the_lines_after_it_are_cut(
    tmp_path, logged, corpus, monkeypatch, unbroken_logged
):
    """Saved at step 8 and killed at 13."""
    out = tmp_path / "run"
    monkeypatch.setattr(session.Session, "save_when_due", lambda self: self.save() if self.step == 8 else None)
    with pytest.raises(KilledError):
        run(logged, out, corpus, on_record=at_step(13, kill))
    monkeypatch.undo()
    assert records(out)[-1]["step"] == 13
    said = []
    train(logged, out, corpus=corpus, say=said.append, on_record=at_step(9, lambda: said.append(records(out)[-1])))
    assert f"going on from {out / 'checkpoints' / 'step-000008'}" in said
    assert said[-1]["step"] == 9
    assert_same_run(out, unbroken_logged)


def test_killed_before_its_first_checkpoint_it_starts_again(tmp_path, logged, corpus, unbroken_logged):
    out = tmp_path / "run"
    with pytest.raises(KilledError):
        run(logged, out, corpus, on_record=at_step(5, kill))
    run(logged, out, corpus)
    assert_same_run(out, unbroken_logged)


def test_an_earlier_checkpoint_by_hand(tmp_path, logged, corpus, unbroken_logged):
    """What the message about a damaged checkpoint advises."""
    out = tmp_path / "run"
    for step in (5, 15):
        until(step, logged, out, corpus)
    (out / "checkpoints" / "latest").write_text("step-000005\n")
    until(15, logged, out, corpus)
    run(logged, out, corpus)
    assert_same_run(out, unbroken_logged)


def test_the_batches_after_a_stop_are_those_of_the_unbroken_run(tmp_path, logged, corpus, monkeypatch):
    """Elsewhere the seed was set again at resume, and the same batches came a second time."""
    seen: list[str] = []
    draw = session.train_windows

    def note(*arguments, **options):
        batch = draw(*arguments, **options)
        seen.append(hashlib.sha256(batch.tobytes()).hexdigest())
        return batch

    monkeypatch.setattr(session, "train_windows", note)
    run(logged, tmp_path / "unbroken", corpus)
    expected, seen[:] = list(seen), []
    until(7, logged, tmp_path / "run", corpus)
    assert seen.pop() == expected[7]  # of the step that the signal ended before it began
    until(19, logged, tmp_path / "run", corpus)
    seen.pop()
    run(logged, tmp_path / "run", corpus)
    assert seen == expected
    assert len(set(expected)) == STEPS


def test_the_seconds_go_on_and_leave_out_the_pause(tmp_path, logged, corpus):
    out = tmp_path / "run"
    until(8, logged, out, corpus)
    before = read_metrics(out / "metrics.jsonl")[-1]["seconds"]
    run(logged, out, corpus)
    lines = read_metrics(out / "metrics.jsonl")
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    after = next(line["seconds"] for line in lines if line["step"] == 9)
    assert before < after < before + 30


def test_every_schedule_and_bfloat16_go_on_exactly_too(tmp_path, logged, corpus):
    recipe = replace(
        with_training(logged, tokens=10 * 64),
        model=replace(logged.model, schedule="1x1,2x1", tied=False, norm="layernorm", vocab_multiple=64),
        optimizer=replace(logged.optimizer, lr_schedule="wsd", clip=0.0),
        device=replace(logged.device, dtype="bfloat16"),
    )
    run(recipe, tmp_path / "unbroken", corpus)
    until(6, recipe, tmp_path / "run", corpus)
    run(recipe, tmp_path / "run", corpus)
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")


# Signals


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_the_exit_code_says_which_signal_it_was(tmp_path, recipe, corpus, number, exit_code):
    assert until(1, recipe, tmp_path / "run", corpus, number).exit_code == exit_code


def test_a_stopped_run_is_free_for_the_next_process(tmp_path, recipe, corpus):
    until(1, recipe, tmp_path / "run", corpus)
    assert not (tmp_path / "run" / ".lock-owner").exists()
    with locked(tmp_path / "run"):
        pass


def test_handlers_are_set_back(recipe):
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as noted:
        assert signal.getsignal(signal.SIGTERM) != before
        signal.raise_signal(signal.SIGTERM)
        assert noted == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path, recipe, corpus):
    before, found = signal.getsignal(signal.SIGTERM), []

    def look(record: dict) -> None:
        found.append(signal.getsignal(signal.SIGTERM))

    recipe = with_training(recipe, tokens=64)
    thread = threading.Thread(target=lambda: run(recipe, tmp_path / "run", corpus, on_record=look))
    thread.start()
    thread.join()
    assert found == [before] * 2


SCRIPT = """
    import os, signal, sys
    from pathlib import Path
    from prism_transformer.data import Corpus
    from prism_transformer.errors import Stopped
    from prism_transformer.training.loop import train
    from prism_transformer.training.recipe_files import load_recipe

    recipe, out, corpus, step, signals = sys.argv[1:]

    def on_record(record):
        if record["step"] == int(step):
            for number in signals.split(","):
                signal.raise_signal(int(number))

    try:
        train(load_recipe(recipe).recipe, out, corpus=Corpus.open(Path(corpus)), on_record=on_record)
    except Stopped as stopped:
        print(stopped)
        sys.exit(stopped.exit_code)
"""


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ((signal.SIGTERM,), 75),
        pytest.param(
            (signal.SIGTERM, signal.SIGTERM),
            -signal.SIGTERM,
            marks=pytest.mark.skipif(os.name != "posix", reason="no exit code tells of a signal here"),
        ),
    ],
)
def test_a_process_of_its_own_saves_at_the_first_signal_and_ends_at_once_at_the_second(
    tmp_path, logged, corpus, unbroken_logged, signals, code
):
    out, file = tmp_path / "run", tmp_path / "recipe.yaml"
    file.write_text(to_yaml(logged))
    numbers = ",".join(str(int(number)) for number in signals)
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(file), str(out), str(corpus.folder), "7", numbers],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == code, process.stderr
    assert ("stopped at step 7 of 24" in process.stdout) == (code == 75)
    assert process.stderr == ""
    latest = RunFolder(out).latest()
    assert (latest and latest.name) == ("step-000007" if code == 75 else None)
    train(logged, out, corpus=corpus, say=quiet)
    assert_same_run(out, unbroken_logged)
