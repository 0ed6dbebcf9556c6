"""Block-causal attention against its definition in double precision."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from prism_transformer.kernels.block_causal import BLOCK, NAME, block_causal
from prism_transformer.kernels.choose import use_fast_paths
from prism_transformer.kernels.linear_cross_entropy import linear_cross_entropy
from prism_transformer.model.modeling_prism import PrismForCausalLM
from prism_transformer.training.recipe import ModelSettings

SHAPES = [(1, 1, 2, 4), (2, 3, BLOCK, 8), (1, 2, BLOCK + 1, 16), (2, 2, 3 * BLOCK - 5, 6)]


def example(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    q, k, v, dy = (torch.randn(shape, generator=generator).to(dtype) for _ in range(4))
    return [x.requires_grad_() for x in (q, k, v)], dy


def definition(leaves, dy, scale):
    q, k, v = (x.detach().double().requires_grad_() for x in leaves)
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    y = (q @ k.mT * scale).masked_fill(~seen, float("-inf")).softmax(-1) @ v
    return [y.detach(), *torch.autograd.grad(y, (q, k, v), dy.double())]


def errors(found, expected):
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_output_and_gradients(shape, dtype, largest):
    leaves, dy = example(shape, dtype)
    y = block_causal(*leaves, scale=0.3)
    found = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
    assert found[0].dtype == dtype and y.transpose(1, 2).is_contiguous()
    assert max(errors(found, definition(leaves, dy, 0.3))) < largest


def test_later_positions_change_nothing():
    (q, k, v), _ = example((1, 2, BLOCK + 9, 8))
    whole = block_causal(q, k, v, scale=1.0)
    at = BLOCK + 2
    part = block_causal(q[:, :, :at], k[:, :, :at], v[:, :, :at], scale=1.0)
    assert torch.allclose(whole[:, :, :at], part, atol=1e-6)


@pytest.fixture(scope="module")
def model() -> PrismForCausalLM:
    torch.manual_seed(0)
    settings = ModelSettings(layers=3, d_model=32, heads=4, schedule="1x1,2x1,4x1", context=160)
    return PrismForCausalLM(settings.config(67))


def gradients(model, ids, implementation, **inputs):
    model.set_attn_implementation(implementation)
    model.zero_grad()
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    labels = ids.masked_fill(mask.cumsum(1) < 2, -100)  # what no real token stands before is not predicted
    loss = model(ids, labels=labels, use_cache=False, **inputs).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def test_a_model_has_the_gradients_of_the_plain_path(model):
    ids = torch.randint(67, (2, 160), generator=torch.Generator().manual_seed(1))
    plain = [x.double() for x in gradients(model, ids, "eager")]
    assert max(errors(gradients(model, ids, NAME), plain)) < 1e-5


def test_padding_is_masked(model):
    ids = torch.randint(67, (2, 20), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    plain = [x.double() for x in gradients(model, ids, "eager", attention_mask=mask)]
    assert max(errors(gradients(model, ids, NAME, attention_mask=mask), plain)) < 1e-5
    unmasked = gradients(model, ids, NAME)
    assert max(errors(unmasked, plain)) > 1e-3  # the mask does something


def test_under_autocast_its_type_is_taken_and_gradients_come_back_in_that_of_the_inputs():
    leaves, dy = example((1, 2, 20, 8))
    with torch.autocast("cpu", torch.bfloat16):
        y = block_causal(*leaves, scale=0.3)
    assert y.dtype == torch.bfloat16
    found = torch.autograd.grad(y, leaves, dy.bfloat16())
    assert {x.dtype for x in found} == {torch.float32}
    assert max(errors([y.detach(), *found], definition(leaves, dy, 0.3))) < 1e-2


def test_generation_with_a_cache_is_generation_without(model):
    model.set_attn_implementation(NAME)
    ids = torch.randint(1, 67, (2, 12), generator=torch.Generator().manual_seed(3))
    options = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    texts = [model.generate(ids, use_cache=cached, **options).tolist() for cached in (True, False)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("device", "dtype", "is_block_causal", "is_chunked"),
    [("cpu", torch.float32, False, True), ("cpu", torch.bfloat16, True, True), ("cuda", torch.bfloat16, False, False)],
)
def test_paths_are_chosen_by_device_and_type(device, dtype, is_block_causal, is_chunked, tmp_path):
    model = PrismForCausalLM(ModelSettings(layers=1, d_model=8, heads=2, context=8).config(11))
    use_fast_paths(model, torch.device(device), dtype)
    assert (model.config._attn_implementation == NAME) == is_block_causal
    assert (model.loss_function_of_hidden is linear_cross_entropy) == is_chunked
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()  # whoever loads it has another device


def test_it_is_registered_with_its_mask():
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    assert NAME in ALL_ATTENTION_FUNCTIONS.valid_keys() and NAME in ALL_MASK_ATTENTION_FUNCTIONS.valid_keys()
