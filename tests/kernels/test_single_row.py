"""Weights laid out for the product of one row: the same model, only its memory differs."""

import torch

from prism_transformer import PrismConfig, PrismForCausalLM
from prism_transformer.kernels.choose import use_fast_generation

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "head_schedule": [1, 2, 4], "vocab_size": 99}


def models() -> tuple[PrismForCausalLM, PrismForCausalLM]:
    plain = PrismForCausalLM(PrismConfig(**SIZES)).eval()
    other = PrismForCausalLM(PrismConfig(**SIZES)).eval()
    other.load_state_dict(plain.state_dict())
    return plain, other


def test_values_shapes_and_the_shared_head_stay_and_memory_is_turned():
    plain, turned = models()
    use_fast_generation(turned, torch.device("cpu"), torch.float32)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, turned.state_dict()[name]), name
    assert turned.lm_head.weight is turned.model.embed_tokens.weight
    for name in ("lm_head", "model.layers.0.mlp.down_proj", "model.layers.2.self_attn.q_proj"):
        assert turned.get_submodule(name).weight.t().is_contiguous(), name


def test_the_same_logits_for_one_row_and_for_many():
    plain, turned = models()
    use_fast_generation(turned, torch.device("cpu"), torch.float32)
    for length in (1, 7):
        ids = torch.arange(2 * length).view(2, length)
        torch.testing.assert_close(turned(ids).logits, plain(ids).logits, rtol=1e-5, atol=1e-6)


def test_bfloat16_keeps_its_rows_since_its_product_of_one_row_needs_them():
    plain, other = models()
    use_fast_generation(other.bfloat16(), torch.device("cpu"), torch.bfloat16)
    assert other.lm_head.weight.is_contiguous() and other.lm_head.weight.shape == plain.lm_head.weight.shape
