"""Text from a model: as the model and the tokenizer define it, cut where it must be."""

import pytest
import torch

from prism_transformer.data import load_tokenizer
from prism_transformer.errors import InputError
from prism_transformer.evaluation.generation import generate
from prism_transformer.evaluation.loading import LoadedModel, Start
from prism_transformer.evaluation.sampling import Sampling
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Random weights over bytes, in a vocabulary with padding that the model does not know of."""
    torch.manual_seed(0)
    config = PrismConfig(
        hidden_size=32, num_hidden_layers=2, head_schedule=[1, 4], vocab_size=320, max_position_embeddings=48,
        eos_token_id=256,
    )  # fmt: skip
    model = PrismForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return LoadedModel(
        path=tmp_path_factory.mktemp("none"), arm="random", seed=None, model=model, run=None, corpus=None,
        tokenizer=load_tokenizer("bytes"), start=Start(256, True, "end-of-text before each text"),
    )  # fmt: skip


def by_hand(loaded, prompt, count):
    """The most likely byte again and again, from end-of-text and the prompt's bytes."""
    ids = [256, *prompt.encode()]
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(loaded.model(torch.tensor([ids])).logits[0, -1, :257].argmax()))
        if ids[-1] == 256:
            break
    return ids[1 + len(prompt.encode()) :]


def text_of(loaded, ids):
    return loaded.tokenizer.decode([i for i in ids if i != 256])


@pytest.mark.parametrize("prompt", ["", "The cat", "naïve"])
def test_greedy_text_is_the_most_likely_one(loaded, prompt):
    (found,), seconds = generate(loaded, [prompt], sampling=GREEDY, max_tokens=12)
    expected = by_hand(loaded, prompt, 12)
    assert found.text == text_of(loaded, expected)
    assert found.ended == ("end of text" if expected[-1] == 256 else "length")
    assert seconds > 0


def test_a_batch_gives_each_prompt_its_own_text(loaded):
    prompts = ["The cat", "", "A much longer prompt"]
    together, _ = generate(loaded, prompts, sampling=GREEDY, max_tokens=10)
    for prompt, found in zip(prompts, together, strict=True):
        assert found.prompt == prompt
        assert found.text == text_of(loaded, by_hand(loaded, prompt, 10))


def test_padded_ids_are_never_chosen(loaded):
    """At a heat where all rows are about as likely, 63 of 320 would be padding."""
    (found,), _ = generate(loaded, ["x"] * 1, sampling=Sampling(temperature=1e9, seed=3), max_tokens=40)
    assert found.tokens <= 40  # bytes.decode would fail on an id above 256


def test_a_seed_gives_a_text_and_another_seed_another(loaded):
    texts = [
        generate(loaded, ["x"], sampling=Sampling(temperature=1.5, seed=seed), max_tokens=20)[0][0].text
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_the_callers_random_numbers_are_left_alone(loaded):
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    generate(loaded, ["x"], sampling=Sampling(seed=9), max_tokens=3)
    assert torch.equal(torch.rand(2), expected)


def test_top_k_1_and_a_tiny_top_p_are_greedy(loaded):
    expected = generate(loaded, ["x"], sampling=GREEDY, max_tokens=8)[0][0].text
    for sampling in (Sampling(temperature=2.0, top_k=1), Sampling(temperature=2.0, top_p=1e-6)):
        assert generate(loaded, ["x"], sampling=sampling, max_tokens=8)[0][0].text == expected


def test_what_is_streamed_is_the_text(loaded):
    parts = []
    (found,), _ = generate(
        loaded, ["The cat"], sampling=Sampling(temperature=1.0, seed=4), max_tokens=30, on_text=parts.append
    )
    assert "".join(parts) == found.text
    assert len(parts) > 3


def test_a_stop_ends_the_text_before_it(loaded):
    whole = generate(loaded, ["The cat"], sampling=GREEDY, max_tokens=16)[0][0].text
    stop = whole[5:8]
    parts = []
    (found,), _ = generate(
        loaded, ["The cat"], sampling=GREEDY, max_tokens=16, stop=[stop, "never"], on_text=parts.append
    )
    assert found.text == whole[: whole.index(stop)] == "".join(parts)
    assert found.ended == "stop"


def test_a_text_ends_where_the_context_is_full(loaded):
    (found,), _ = generate(loaded, ["x" * 40], sampling=Sampling(temperature=1.0), max_tokens=100)
    assert found.tokens <= 48 - 41
    with pytest.raises(InputError, match="49 tokens; the model sees 48"):
        generate(loaded, ["x" * 48], sampling=GREEDY, max_tokens=1)


def test_every_wrong_setting_is_named():
    found = Sampling(temperature=-1, top_k=-2, top_p=0, seed=-1).problems()
    assert [sentence.split()[0] for sentence in found] == ["temperature", "top-k", "top-p", "seed"]
