"""The validation loss against a softmax written out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from prism_transformer.benchmark.inspection import compilation_counted
from prism_transformer.data import TokenStream, load_tokenizer
from prism_transformer.errors import InputError
from prism_transformer.evaluation import loss
from prism_transformer.evaluation.loss import TextLoss, document_losses, loss_by_position, text_loss, token_losses
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

CONTEXT = 5


def make_stream(tokens: int, *, text_bytes: int | None = None, cut: int = 9) -> TokenStream:
    """Fixed ids in two parts, so that windows cross from shard to shard."""
    ids = np.random.default_rng(0).integers(0, 257, tokens).astype("<u2")
    return TokenStream(
        where="validation split",
        parts=[ids[:cut], ids[cut:]],
        names=["first", "second"],
        tokenizer=load_tokenizer("bytes"),
        stated_text_bytes=tokens if text_bytes is None else text_bytes,
    )


def evaluate(model: PrismForCausalLM, stream: TokenStream, **options: Any) -> TextLoss:
    return text_loss(token_losses(model, stream, **options), stream)


@pytest.fixture(scope="module")
def model() -> PrismForCausalLM:
    torch.manual_seed(0)
    config = PrismConfig(hidden_size=16, num_hidden_layers=2, head_schedule=[1, 4], vocab_size=264, true_vocab_size=257)
    model = PrismForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight))
    return model.train()


@torch.no_grad()
def losses_by_hand(model: PrismForCausalLM, ids: np.ndarray, context: int) -> list[float]:
    """-log softmax(logits)[next], for each token but the first, from the tokens of its window before it."""
    losses = []
    for target in range(1, len(ids)):
        start = (target - 1) // context * context
        seen = torch.tensor(ids[start:target].astype(np.int64))[None]
        logits = model(seen, use_cache=False).logits[0, -1, :257].double().numpy()
        losses.append(math.log(np.exp(logits).sum()) - logits[ids[target]])
    return losses


@pytest.mark.parametrize("tokens", [2, 3, 6, 7, 16, 20, 21])
def test_every_token_but_the_first_is_predicted_once_from_its_window(model, tokens):
    stream = make_stream(tokens)
    expected = losses_by_hand(model, np.concatenate(stream.parts), CONTEXT)
    found = token_losses(model, stream, context=CONTEXT, batch_size=2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_loss_is_the_mean_over_tokens_and_bits_per_byte_the_sum_over_bytes(model):
    stream = make_stream(21, text_bytes=70)
    expected = losses_by_hand(model, np.concatenate(stream.parts), CONTEXT)
    found = evaluate(model, stream, context=CONTEXT, batch_size=3)
    assert found.tokens == 20
    assert found.nats_per_token == pytest.approx(sum(expected) / 20, rel=1e-5)
    assert found.bits_per_byte == pytest.approx(sum(expected) / math.log(2) / 70, rel=1e-5)


def test_a_model_that_knows_nothing_scores_the_log_of_the_vocabulary(model):
    """All logits 0: ln 257 nats a token; with 20 predicted tokens over 20 bytes, log2 257 bits a byte."""
    blank = PrismForCausalLM(model.config)
    torch.nn.init.zeros_(blank.lm_head.weight)
    found = evaluate(blank, make_stream(21, text_bytes=20), context=CONTEXT, batch_size=3)
    assert found.nats_per_token == pytest.approx(math.log(257), rel=1e-6)
    assert found.bits_per_byte == pytest.approx(math.log2(257), rel=1e-6)


def test_the_batch_size_does_not_change_the_losses(model):
    one, seven = (token_losses(model, make_stream(40), context=CONTEXT, batch_size=size) for size in (1, 7))
    np.testing.assert_allclose(one, seven, rtol=1e-5, atol=1e-5)


def test_a_large_vocabulary_gets_smaller_batches(model, monkeypatch):
    """5 positions of 264 rows are 1,320 logits a window."""
    seen = []
    hook = model.register_forward_pre_hook(lambda module, arguments: seen.append(len(arguments[0])))
    monkeypatch.setattr(loss, "MOST_LOGITS", 3000)
    try:
        token_losses(model, make_stream(41), context=CONTEXT, batch_size=7)
    finally:
        hook.remove()
    assert seen == [2, 2, 2, 2]


def test_compiled_layers_are_evaluated_as_they_are_written(model):
    """Three shapes would be three graphs more; and afterwards what was compiled is compiled again."""
    compiled = PrismForCausalLM(model.config)
    compiled.load_state_dict(model.state_dict())
    for layer in compiled.model.layers:
        layer.compile(backend="eager")
    with compilation_counted() as counted:
        losses = token_losses(compiled, make_stream(23), context=CONTEXT, batch_size=3)
    assert counted.graphs == 0
    np.testing.assert_array_equal(losses, token_losses(model, make_stream(23), context=CONTEXT, batch_size=3))
    with compilation_counted() as counted:
        compiled(torch.zeros(1, 4, dtype=torch.long), use_cache=False)
    assert counted.graphs == 2


@pytest.mark.parametrize(
    ("max_tokens", "windows"),
    [(1, [0]), (9, [0]), (10, [0, 2]), (19, [0, 1, 3]), (20, [0, 1, 2, 3]), (99, [0, 1, 2, 3, 4])],
)
def test_a_part_of_the_stream_is_windows_spread_over_it(model, max_tokens, windows):
    """23 tokens in windows of 5: their targets are 5, 5, 5, 5 and 2."""
    stream = make_stream(23)
    whole = token_losses(model, stream, context=CONTEXT, batch_size=2)
    part = token_losses(model, stream, context=CONTEXT, batch_size=2, max_tokens=max_tokens)
    expected = np.concatenate([whole[5 * window :][:5] for window in windows])
    np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-5)


def test_a_part_has_no_bits_per_byte_and_does_not_count_the_bytes_of_the_whole(model):
    class Counting(TokenStream):
        @property
        def text_bytes(self):
            raise AssertionError("counting decodes the whole split")

    stream = make_stream(23)
    counting = Counting(where="", parts=stream.parts, names=stream.names, tokenizer=stream.tokenizer)
    assert evaluate(model, counting, context=CONTEXT, batch_size=2, max_tokens=10).bits_per_byte is None


def test_padding_rows_of_the_vocabulary_get_no_probability(model):
    """264 rows of which 257 are tokens: the losses by hand above leave the other 7 out; here they are made large."""
    before = token_losses(model, make_stream(12), context=CONTEXT, batch_size=2)
    with torch.no_grad():
        model.lm_head.weight[257:] += 100
    np.testing.assert_array_equal(before, token_losses(model, make_stream(12), context=CONTEXT, batch_size=2))


@pytest.mark.parametrize("mode", [True, False])
def test_evaluating_leaves_mode_gradients_and_random_numbers_as_they_were(model, mode):
    model.train(mode)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    evaluate(model, make_stream(12), context=CONTEXT, batch_size=2)
    assert torch.equal(torch.rand(3), expected)
    assert all(module.training == mode for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.is_grad_enabled()


def test_bfloat16_products_give_nearly_the_same_loss(model):
    plain = evaluate(model, make_stream(21), context=CONTEXT, batch_size=2).nats_per_token
    cast = torch.autocast("cpu", dtype=torch.bfloat16)
    rough = evaluate(model, make_stream(21), context=CONTEXT, batch_size=2, autocast=cast).nats_per_token
    assert rough != plain
    assert rough == pytest.approx(plain, rel=0.05)


def test_a_stream_in_which_nothing_can_be_predicted_is_refused(model):
    with pytest.raises(InputError, match="at least 2 are needed"):
        evaluate(model, make_stream(1), context=CONTEXT, batch_size=2)


def test_loss_by_position_groups_tokens_by_what_they_have_seen():
    """Context 5: tokens 0 .. 4 of a window see 1 .. 5; the second window is cut after two."""
    losses = np.array([8, 4, 2, 1, 0.5, 6, 2], dtype=np.float32)
    found = loss_by_position(losses, context=5)
    assert [(each.first, each.last, each.tokens) for each in found] == [(1, 1, 2), (2, 2, 2), (3, 4, 2), (5, 5, 1)]
    assert [each.nats_per_token for each in found] == pytest.approx([7.0, 3.0, 1.5, 0.5])
    assert [each.last for each in loss_by_position(losses, context=1024)] == [1, 2, 4, 8]


def test_loss_by_position_adds_up_to_the_loss(model):
    stream = make_stream(33)
    losses = token_losses(model, stream, context=CONTEXT, batch_size=4)
    found = loss_by_position(losses, context=CONTEXT)
    total = sum(each.nats_per_token * each.tokens for each in found)
    assert total / len(losses) == pytest.approx(evaluate(model, stream, context=CONTEXT, batch_size=4).nats_per_token)


def test_documents_sum_to_the_total_each_with_the_end_of_text_after_it():
    end = load_tokenizer("bytes").end_of_text
    ids = np.array([end, 5, 6, end, end, 7, end], dtype="<u2")  # two tokens, none, one, none
    stream = TokenStream(where="", parts=[ids], names=[""], tokenizer=load_tokenizer("bytes"))
    losses = np.array([1, 2, 4, 8, 16, 32], dtype=np.float32)  # of 5, 6, end, end, 7, end
    found = document_losses(losses, stream)
    assert found.nats.tolist() == [1 + 2 + 4, 8, 16 + 32]
    assert found.tokens.tolist() == [3, 1, 2]


def test_a_piece_of_a_document_at_the_start_counts_as_one():
    end = load_tokenizer("bytes").end_of_text
    stream = TokenStream(
        where="", parts=[np.array([5, 6, end, 7], dtype="<u2")], names=[""], tokenizer=load_tokenizer("bytes")
    )
    found = document_losses(np.array([1, 2, 4], dtype=np.float32), stream)
    assert (found.nats.tolist(), found.tokens.tolist()) == ([3, 4], [2, 1])
