"""When a run saves, what a checkpoint takes, and a disk that is too small for it."""

import shutil
from collections import namedtuple
from dataclasses import replace

import pytest

from prism_transformer.errors import RunError
from prism_transformer.training.recipe import with_training
from prism_transformer.training.saving import SaveClock, check_space, checkpoint_bytes

Usage = namedtuple("Usage", "total used free")


def test_by_default_every_ten_minutes(recipe):
    clock = SaveClock(recipe, seconds=100.0, spent=0.0)
    assert not clock.due(1, 100 + 599.9)
    assert clock.due(1, 100 + 600)
    clock.saved(700.0, took=2.0)
    assert not clock.due(1, 1299.9) and clock.due(1, 1300.0)
    assert clock.spent == 2.0


def test_a_save_that_takes_long_is_made_less_often_so_that_it_takes_1_percent(recipe):
    """30 s are 1 % of 3000 s."""
    clock = SaveClock(recipe, seconds=0.0, spent=0.0)
    clock.saved(600.0, took=30.0)
    assert clock.interval == pytest.approx(3000.0)
    assert not clock.due(1, 3599.0) and clock.due(1, 3601.0)


def test_minutes_that_were_asked_for_are_kept(recipe):
    clock = SaveClock(with_training(recipe, save_minutes=0.5), seconds=0.0, spent=0.0)
    clock.saved(10.0, took=30.0)
    assert not clock.due(1, 39.0) and clock.due(1, 40.0)


def test_every_nth_step_is_saved_whatever_the_time(recipe):
    clock = SaveClock(with_training(recipe, keep_every=5), seconds=0.0, spent=0.0)
    assert [step for step in range(1, 16) if clock.due(step, 0.0)] == [5, 10, 15]


def test_after_a_failed_save_the_next_is_tried_soon(recipe):
    clock = SaveClock(recipe, seconds=0.0, spent=0.0)
    clock.failed(600.0)
    assert not clock.due(1, 659.0) and clock.due(1, 660.1)


def test_the_size_is_that_of_a_real_checkpoint(unbroken, recipe):
    """Within what configuration, code and headers take, which weigh little beside a model of any use."""
    (folder, *_) = (unbroken / "checkpoints").glob("step-*")
    real = sum(file.stat().st_size for file in folder.iterdir())
    parameters = recipe.model.cost(257).parameters
    assert checkpoint_bytes(recipe, 257) == 12 * parameters + 16 * 4 * 257 + 2**17
    assert 0.5 * real < checkpoint_bytes(recipe, 257) < 1.5 * real


@pytest.fixture
def free(monkeypatch):
    """Set the free bytes of every disk; notes which path was asked about."""
    asked = []

    def set_free(n_bytes: float) -> list:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or Usage(0, 0, int(n_bytes)))
        return asked

    return set_free


def test_room_for_all_that_is_kept_is_quiet_and_less_is_warned_of(tmp_path, recipe, free):
    """2 are kept, and a third lies beside them while it is written."""
    one = checkpoint_bytes(recipe, 257)
    asked = free(3 * one)
    assert check_space(tmp_path / "run" / "checkpoints", recipe, 257) is None
    assert asked == [tmp_path]  # the volume on which they will lie
    free(3 * one - 1)
    warning = check_space(tmp_path, recipe, 257)
    assert warning is not None and ": a checkpoint takes 270.8 kB, and 812.4 kB are free, but" in warning
    assert "but up to 3 lie there at a time (812.4 kB)" in warning


def test_what_is_kept_for_good_counts_and_what_is_there_already_too(tmp_path, recipe, free):
    one = checkpoint_bytes(recipe, 257)
    every = with_training(recipe, keep_every=6)  # of 24 steps: 4
    free(7 * one - 1)
    assert "up to 7 lie there" in (check_space(tmp_path, every, 257) or "")
    (tmp_path / "step-000006").mkdir()
    (tmp_path / "step-000006" / "model.safetensors").write_bytes(bytes(one))
    assert check_space(tmp_path, every, 257) is None


def test_no_room_for_one_checkpoint_ends_the_run_before_it_starts(tmp_path, recipe, free):
    free(checkpoint_bytes(recipe, 257) - 1)
    with pytest.raises(
        RunError, match=r"no space left on the disk: a checkpoint takes 270\.8 kB, and 270\.8 kB are free"
    ):
        check_space(tmp_path, recipe, 257)


def test_a_model_of_124_million_takes_one_and_a_half_gigabytes(recipe):
    """12 bytes x 123.6M."""
    small = replace(recipe, model=replace(recipe.model, layers=12, d_model=768, heads=12, schedule="uniform"))
    assert checkpoint_bytes(small, 50257) == pytest.approx(12 * 123.6e6, rel=0.01)
