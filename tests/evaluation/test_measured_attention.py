"""Attention distance against equation 1 written out over explicit weights, for every head count of the paper."""

import copy
import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prism_transformer.data import TokenStream, load_tokenizer
from prism_transformer.errors import DivergedError, InputError
from prism_transformer.evaluation.measured_attention import AttentionStatistics, measure_attention
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

CONTEXT = 64
END = 256


def make_stream(tokens: int, *, documents: tuple[int, ...] = (0,)) -> TokenStream:
    ids = np.random.default_rng(0).integers(0, 256, tokens)
    ids[list(documents)] = END
    return TokenStream(
        where="text", parts=[ids.astype("<u2")], names=["text"], tokenizer=load_tokenizer("bytes"), stated_text_bytes=1
    )


def sharpen(model: torch.nn.Module, spread: float) -> None:
    """Weights large enough that attention is far from uniform."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                weight.copy_(torch.randn_like(weight) * spread)


@pytest.fixture(scope="module")
def prism() -> PrismForCausalLM:
    """Four layers with 3, 6, 8 and 12 heads, like the paper's small schedule."""
    torch.manual_seed(0)
    config = PrismConfig(
        hidden_size=96, num_hidden_layers=4, head_schedule=[3, 6, 8, 12], vocab_size=257, max_position_embeddings=64
    )
    model = PrismForCausalLM(config)
    sharpen(model, 0.4)
    return model.eval()


@torch.no_grad()
def explicit(model: torch.nn.Module, ids: np.ndarray, counted: range) -> list[dict[str, np.ndarray]]:
    """By layer: [heads] distance, sink share and entropy over the counted queries, from the weights themselves."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    maps = model(torch.tensor(ids)[None], output_attentions=True).attentions
    model.set_attn_implementation(before)
    found = []
    for weights in maps:
        A = weights[0].double().numpy()
        layer = {name: np.zeros(len(A)) for name in ("distance", "sink_share", "entropy")}
        for head in range(len(A)):
            for t in counted:
                a = A[head, t, : t + 1]
                layer["distance"][head] += sum(a[s] * (t - s) for s in range(t + 1))
                layer["sink_share"][head] += a[0]
                layer["entropy"][head] += -sum(p * math.log(p) for p in a if p > 0)
        found.append({name: total / len(counted) for name, total in layer.items()})
    return found


def assert_close(measured: AttentionStatistics, expected: list[dict[str, np.ndarray]]) -> None:
    assert len(measured.layers) == len(expected)
    for layer, wanted in zip(measured.layers, expected, strict=True):
        np.testing.assert_allclose(layer.distance, wanted["distance"], atol=1e-3)
        np.testing.assert_allclose(layer.sink_share, wanted["sink_share"], atol=1e-5)
        np.testing.assert_allclose(layer.entropy, wanted["entropy"], atol=1e-4)


def test_equals_the_explicit_definition_for_every_head_count(prism):
    stream = make_stream(CONTEXT)
    measured = measure_attention(prism, stream, context=CONTEXT, sequences=1)
    assert [len(layer.distance) for layer in measured.layers] == [3, 6, 8, 12]
    assert measured.queries == CONTEXT // 2
    wanted = explicit(prism, stream.read(0, CONTEXT), range(CONTEXT // 2, CONTEXT))
    assert_close(measured, wanted)
    assert max(w["distance"].max() for w in wanted) > 1.5 * min(w["distance"].min() for w in wanted)  # heads differ


def test_sequences_are_averaged_and_spread_over_the_stream_without_overlap(prism):
    stream = make_stream(5 * CONTEXT + 3)
    measured = measure_attention(prism, stream, context=CONTEXT, sequences=2)
    starts = (0, 2 * CONTEXT)  # of five windows, the first and the one that begins the second half
    each = [explicit(prism, stream.read(s, CONTEXT), range(CONTEXT // 2, CONTEXT)) for s in starts]
    mean = [{k: (a[k] + b[k]) / 2 for k in a} for a, b in zip(*each, strict=True)]
    assert (measured.sequences, measured.queries) == (2, CONTEXT)
    assert_close(measured, mean)


def test_documents_apart_do_not_see_each_other(prism):
    """Positions are counted in the window, distances in the document."""
    stream = make_stream(CONTEXT, documents=(0, 20, 44))
    measured = measure_attention(prism, stream, context=CONTEXT, sequences=1, documents="apart")
    ids = stream.read(0, CONTEXT)
    second = explicit(prism, ids[20:44], range(12, 24))  # queries 32 .. 43 of the window
    third = explicit(prism, ids[44:], range(20))  # queries 44 .. 63
    mean = [{k: (12 * a[k] + 20 * b[k]) / 32 for k in a} for a, b in zip(second, third, strict=True)]
    assert measured.queries == 32
    assert_close(measured, mean)


def test_distance_beyond_the_sink_leaves_position_0_out(prism):
    stream = make_stream(CONTEXT)
    measured = measure_attention(prism, stream, context=CONTEXT, sequences=1)
    prism.set_attn_implementation("eager")
    with torch.no_grad():
        A = prism(torch.tensor(stream.read(0, CONTEXT))[None], output_attentions=True).attentions[0][0, 1].double()
    prism.set_attn_implementation("sdpa")
    queries = range(CONTEXT // 2, CONTEXT)
    away = sum(float(A[t, s]) * (t - s) for t in queries for s in range(1, t + 1))
    mass = sum(float(A[t, s]) for t in queries for s in range(1, t + 1))
    assert measured.layers[0].distance_beyond_sink[1] == pytest.approx(away / mass, abs=1e-3)


def test_uniform_attention_looks_half_way_back():
    """With equal scores A = 1/(t+1): D = t/2, entropy = log(t+1), sink share 1/(t+1)."""
    config = PrismConfig(hidden_size=16, num_hidden_layers=1, head_schedule=[2], vocab_size=257)
    model = PrismForCausalLM(config)
    torch.nn.init.zeros_(model.model.layers[0].self_attn.q_proj.weight)
    layer = measure_attention(model, make_stream(32), context=32, sequences=1).layers[0]
    queries = range(16, 32)
    assert layer.distance == pytest.approx([sum(t / 2 for t in queries) / 16] * 2, abs=1e-4)
    assert layer.entropy == pytest.approx([sum(math.log(t + 1) for t in queries) / 16] * 2, abs=1e-5)
    assert layer.sink_share == pytest.approx([sum(1 / (t + 1) for t in queries) / 16] * 2, abs=1e-6)
    assert layer.mean("distance") == pytest.approx(11.75, abs=1e-4)


def test_entropy_holds_where_position_0_gets_no_attention_at_all(prism):
    """Scores so far apart that exp underflows for position 0: the anchor of the log-sum-exp is gone."""
    config = PrismConfig(hidden_size=16, num_hidden_layers=1, head_schedule=[1], vocab_size=257)
    torch.manual_seed(0)
    model = PrismForCausalLM(config).eval()
    sharpen(model, 20.0)
    stream = make_stream(CONTEXT)
    measured = measure_attention(model, stream, context=CONTEXT, sequences=1)
    wanted = explicit(model, stream.read(0, CONTEXT), range(CONTEXT // 2, CONTEXT))
    assert wanted[0]["sink_share"][0] < 0.05 and measured.layers[0].entropy[0] < 1
    np.testing.assert_allclose(measured.layers[0].entropy, wanted[0]["entropy"], atol=2e-3)  # scores of thousands


def test_grouped_heads_of_a_llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=257,
        intermediate_size=32, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    sharpen(model, 0.4)
    stream = make_stream(CONTEXT)
    measured = measure_attention(model, stream, context=CONTEXT, sequences=1)
    assert_close(measured, explicit(model, stream.read(0, CONTEXT), range(CONTEXT // 2, CONTEXT)))


def test_model_is_left_as_it_was(prism):
    prism.train()
    state = torch.get_rng_state()
    before = prism(torch.arange(8)[None]).logits
    measure_attention(prism, make_stream(CONTEXT), context=CONTEXT, sequences=1)
    assert prism.training and prism.config._attn_implementation == "sdpa"
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(prism(torch.arange(8)[None]).logits, before)
    prism.eval()


def test_padding_mask_is_respected_by_the_measuring_function(prism):
    """An attention function without a mask function of the same name would ignore it without a word."""
    from prism_transformer.evaluation.measured_attention import _measured

    ids = torch.randint(0, 256, (1, 16))
    mask = torch.ones(1, 16, dtype=torch.long)
    mask[0, :6] = 0
    with torch.no_grad():
        plain = prism(ids, attention_mask=mask).logits[:, 6:]
        with _measured(prism):
            measured = prism(ids, attention_mask=mask, attention_sums={}, first_counted=8).logits[:, 6:]
    torch.testing.assert_close(measured, plain)


def test_too_little_text(prism):
    with pytest.raises(InputError, match="63 tokens, but a window takes 64"):
        measure_attention(prism, make_stream(63), context=CONTEXT)


def test_attention_that_does_not_pass_through_the_interface_is_refused(prism, monkeypatch):
    attention = prism.model.layers[2].self_attn
    monkeypatch.setattr(attention, "forward", lambda x, *args, **kwargs: (x, None))
    with pytest.raises(InputError, match="3 of 4 layers pass through"):
        measure_attention(prism, make_stream(CONTEXT), context=CONTEXT, sequences=1)
    assert prism.config._attn_implementation == "sdpa"


def test_a_model_that_answers_with_nan_has_diverged(prism):
    broken = copy.deepcopy(prism)
    torch.nn.init.constant_(broken.model.layers[0].self_attn.q_proj.weight, float("nan"))
    with pytest.raises(DivergedError, match="not finite"):
        measure_attention(broken, make_stream(CONTEXT), context=CONTEXT, sequences=1)


@pytest.mark.slow
def test_memory_grows_linearly_with_the_context():
    """No T x T map: at 4096 tokens one map of 2 heads would be 128 MiB."""
    config = PrismConfig(hidden_size=32, num_hidden_layers=1, head_schedule=[2], vocab_size=257)
    model = PrismForCausalLM(config)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        measure_attention(model, make_stream(4096), context=4096, sequences=1)
    largest = max((event.cpu_memory_usage for event in recorded.events()), default=0)
    assert 0 < largest < 32 * 2**20
