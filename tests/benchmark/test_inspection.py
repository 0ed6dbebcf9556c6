"""Kernels and graphs as they run, and what makes a comparison unfair."""

import pytest
import torch

from prism_transformer.benchmark.inspection import (
    PLAIN,
    Compilation,
    Inspected,
    attention_kernels,
    compilation_counted,
    differences,
)
from prism_transformer.kernels.block_causal import NAME
from prism_transformer.model.modeling_prism import PrismForCausalLM
from prism_transformer.training.recipe import ModelSettings

ALIKE = Compilation(graphs=1)


@pytest.fixture
def model() -> PrismForCausalLM:
    return PrismForCausalLM(ModelSettings(layers=3, d_model=32, heads=4, schedule="1,2,4", context=16).config(67))


def forward(model):
    ids = torch.zeros(1, 16, dtype=torch.long)
    return lambda: model(ids, labels=ids, use_cache=False).loss.backward()


@pytest.mark.parametrize(("name", "kernel"), [("sdpa", "flash"), ("eager", PLAIN), (NAME, "block-causal")])
def test_the_kernel_of_each_layer(model, name, kernel):
    model.set_attn_implementation(name)
    assert attention_kernels(model, forward(model)) == [kernel] * 3


def test_a_layer_that_falls_out_of_the_fused_kernel_is_seen(model):
    """Torch's CPU kernel takes no values that are wider than the keys: layer 2 alone gets them."""
    attention = model.model.layers[1].self_attn
    whole = torch.nn.functional.scaled_dot_product_attention

    def plain(query, key, value, **rest):
        scores = query @ key.mT * rest["scale"]
        return scores.softmax(-1) @ value

    attention.register_forward_pre_hook(lambda *_: setattr(torch.nn.functional, "scaled_dot_product_attention", plain))
    attention.register_forward_hook(lambda *_: setattr(torch.nn.functional, "scaled_dot_product_attention", whole))
    assert attention_kernels(model, forward(model)) == ["flash", PLAIN, "flash"]


def test_graphs_are_counted_and_fallbacks_seen(model):
    """A graph for each distinct head count; beyond the limit the rest runs uncompiled (as torch's own log says)."""
    run = forward(model)
    for limit, graphs, fallbacks in ((8, 3, 0), (2, 2, 1)):
        for layer in model.model.layers:
            layer.compile(backend="eager")
        # torch's own patch: pytest's leaves the setting deleted
        with torch._dynamo.config.patch(recompile_limit=limit), compilation_counted() as found:
            run()
        assert (found.graphs, found.fallbacks) == (graphs, fallbacks)
    torch._dynamo.reset()


def arm(kernels=("flash", "flash"), heads=(4, 4), compiled=None) -> Inspected:
    return Inspected({"training": list(kernels)}, list(heads), compiled)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (arm(), []),
        (arm(heads=(2, 4)), []),
        (arm(("flash", PLAIN)), ["training runs in other attention kernels (uniform: flash in every layer; prism: "]),
        (arm(compiled=Compilation(graphs=1)), []),
        (arm(heads=(2, 4), compiled=Compilation(graphs=2)), []),
        (
            arm(heads=(2, 4), compiled=Compilation(graphs=3)),
            ["3 compiled graphs of prism, where its distinct head cou"],
        ),
        (arm(compiled=Compilation(graphs=1, fallbacks=2)), ["fall-backs to uncompiled code: 0 of uniform, 2 of pri"]),
        (arm(compiled=Compilation(graphs=1, breaks=1)), ["graph breaks: 0 of uniform, 1 of prism"]),
    ],
)
def test_what_is_unfair(other, told):
    found = differences({"uniform": arm(compiled=ALIKE if other.compiled else None), "prism": other})
    reasons = found.get("prism", [])
    assert len(reasons) == len(told) and all(a.startswith(b) for a, b in zip(reasons, told, strict=True))
