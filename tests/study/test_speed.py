"""How fast this machine trains: measured for models that fit it, bounded for those that do not."""

from dataclasses import replace

import pytest

from prism_transformer.study import speed
from prism_transformer.study.speed import matrix_peak, training_speed
from prism_transformer.training.recipe import Recipe
from prism_transformer.training.recipe_files import load_recipe


def test_the_speed_is_below_the_rate_of_matrix_products(tiny: Recipe) -> None:
    found, source = training_speed(tiny, 257, seconds=0.2)
    assert source == "measured here"
    assert 0 < found < matrix_peak(tiny.device) / (3 * tiny.model.cost(257).matmul_flops_per_token)


def test_a_model_far_too_large_for_the_device_is_bounded_and_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "matrix_peak", lambda settings: 1e11)
    monkeypatch.setattr(speed, "build_model", None)
    large = load_recipe("large").recipe
    # 3 passes' worth of 2 FLOPs for each weight of the matrices, and the two products of attention
    per_token = 3 * large.model.cost(50_304).matmul_flops_per_token
    assert per_token == pytest.approx(6 * 756.8e6, rel=0.2)
    found, source = training_speed(large, 50_304)
    assert (found, source) == (pytest.approx(1e11 / per_token), "from the matrix products alone")


def test_a_pass_is_no_longer_than_it_needs_to_be(tiny: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide batch of a model of middling size is cut to what takes some seconds."""
    sizes = []
    draw = speed.torch.randint
    monkeypatch.setattr(speed.torch, "randint", lambda high, shape, **_: sizes.append(shape) or draw(high, shape))
    flops = 3 * tiny.model.cost(257).matmul_flops_per_token
    monkeypatch.setattr(speed, "matrix_peak", lambda settings: flops * 16 * 3 / speed.LONGEST_PASS)
    training_speed(replace(tiny, training=replace(tiny.training, micro_batch=64)), 257, seconds=0.05)
    assert sizes == [(3, 17)]
