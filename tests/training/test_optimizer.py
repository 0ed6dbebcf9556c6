"""The learning rate by hand, and which parameters decay."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM
from prism_transformer.training.optimizer import learning_rate, make_optimizer, set_learning_rate
from prism_transformer.training.recipe import OptimizerSettings


def settings(**values: object) -> OptimizerSettings:
    return OptimizerSettings(**{"lr": 1.0, "min_lr_ratio": 0.1, "warmup": 0.1, "decay": 0.2} | values)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.1),  # the first of 10 steps of warmup
        (4, 0.5),
        (9, 1.0),  # the last
        (10, 1.0),  # cos 0
        (55, 0.1 + 0.9 * 0.5),  # half of the 90 steps after it: cos(pi/2) = 0
        (40, 0.1 + 0.9 * 0.75),  # a third: cos(pi/3) = 1/2
        (99, 0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi / 90))),  # one step before the minimum
    ],
)
def test_cosine_after_linear_warmup(step, expected):
    assert learning_rate(step, 100, settings(lr_schedule="cosine")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.1), (9, 1.0), (10, 1.0), (99, 1.0)])
def test_constant_after_linear_warmup(step, expected):
    assert learning_rate(step, 100, settings(lr_schedule="constant")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (9, 1.0), (79, 1.0), (80, 1.0), (90, 0.55), (99, 0.1 + 0.9 / 20)]
)
def test_warmup_stable_decay(step, expected):
    """Stable until the last 20 of 100 steps, then linear to the minimum of 0.1."""
    assert learning_rate(step, 100, settings(lr_schedule="wsd")) == pytest.approx(expected, rel=1e-12)


def test_no_warmup_and_a_warmup_of_the_whole_run():
    assert learning_rate(0, 100, settings(warmup=0.0)) == pytest.approx(1.0)
    assert learning_rate(99, 100, settings(warmup=1.0)) == pytest.approx(1.0)
    assert learning_rate(0, 1, settings(warmup=0.1)) == pytest.approx(1.0)


def test_the_rate_scales_with_the_peak():
    assert learning_rate(55, 100, settings(lr=3e-3)) == pytest.approx(3e-3 * 0.55)


@given(
    st.integers(1, 500),
    st.sampled_from(["cosine", "constant", "wsd"]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 1),
)
def test_the_rate_rises_then_never_rises_again_and_stays_within_its_limits(steps, schedule, warmup, decay, minimum):
    chosen = settings(lr_schedule=schedule, warmup=warmup, decay=decay, min_lr_ratio=minimum)
    rates = [learning_rate(step, steps, chosen) for step in range(steps)]
    top = rates.index(max(rates))
    assert all(a <= b + 1e-12 for a, b in pairwise(rates[: top + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(rates[top:]))
    assert all(0 < rate <= 1 + 1e-12 for rate in rates)
    assert all(rate >= minimum - 1e-12 for rate in rates[top:])


def make(**values: object) -> PrismForCausalLM:
    torch.manual_seed(0)
    return PrismForCausalLM(
        PrismConfig(hidden_size=16, num_hidden_layers=2, head_schedule=[1, 2], vocab_size=32, **values)
    )


@pytest.mark.parametrize(
    "values", [{}, {"tie_word_embeddings": False}, {"norm_type": "layernorm"}], ids=["tied", "untied", "layernorm"]
)
def test_matrices_decay_the_embedding_among_them_and_norms_do_not(values):
    """With gradients of 0 AdamW only decays: w <- w - lr x decay x w."""
    model = make(**values)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, settings(lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = dict(model.named_parameters())
    assert {name for name in before if torch.equal(before[name], after[name])} == {
        name for name in before if "norm" in name
    }
    for name, parameter in after.items():
        if "norm" not in name:
            torch.testing.assert_close(parameter, before[name] * (1 - 0.1 * 0.5))
    assert ("lm_head.weight" in after) == bool(values.get("tie_word_embeddings") is False)


def test_one_step_is_adamw_by_hand():
    """m = (1-b1) g, v = (1-b2) g^2; bias-corrected both are g and g^2, so the step is lr g / (|g| + eps)."""
    layer = torch.nn.Linear(3, 2, bias=True)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = make_optimizer(layer, settings(lr=0.01, weight_decay=0.1, eps=1e-3))
    layer.weight.grad = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    layer.bias.grad = torch.tensor([0.25, -4.0])
    gradient, bias_gradient = layer.weight.grad.clone(), layer.bias.grad.clone()
    optimizer.step()
    torch.testing.assert_close(
        layer.weight.detach(), weight * (1 - 0.01 * 0.1) - 0.01 * gradient / (gradient.abs() + 1e-3)
    )
    torch.testing.assert_close(layer.bias.detach(), bias - 0.01 * bias_gradient / (bias_gradient.abs() + 1e-3))


def test_every_parameter_is_optimized_once():
    model = make()
    optimizer = make_optimizer(model, settings())
    optimized = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(map(id, optimized)) == sorted(id(parameter) for parameter in model.parameters())


def test_the_settings_reach_adamw():
    optimizer = make_optimizer(make(), settings(lr=0.2, beta1=0.8, beta2=0.7, eps=1e-5, weight_decay=0.3))
    decayed, plain = optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.7), 1e-5, 0.2)
    set_learning_rate(optimizer, 0.05)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.05]
