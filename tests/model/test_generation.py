"""Generation: every cache and every way of choosing gives the text that no cache gives."""

import pytest
import torch
import torch.nn.functional as F

from .models import ids, make, randomise

CHOICES = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9},
    "beam": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
}


def generate(model, tokens, **settings):
    torch.manual_seed(11)
    return model.generate(tokens, max_new_tokens=12, pad_token_id=0, **settings)


@pytest.mark.parametrize("cache_implementation", [None, "static"])
@pytest.mark.parametrize("choice", CHOICES)
def test_generation_with_and_without_cache_agrees(choice, cache_implementation):
    model, tokens = randomise(make()), ids(batch=2, length=5)
    plain = generate(model, tokens, use_cache=False, **CHOICES[choice])
    assert plain.shape == (4 if choice == "beam" else 2, 17)
    cached = generate(model, tokens, use_cache=True, cache_implementation=cache_implementation, **CHOICES[choice])
    assert torch.equal(plain, cached)


def test_greedy_text_is_the_most_likely_token_again_and_again():
    model, tokens = randomise(make()), ids(batch=1, length=5)
    expected = tokens
    with torch.no_grad():
        for _ in range(12):
            expected = torch.cat((expected, model(expected).logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(generate(model, tokens, do_sample=False), expected)


@pytest.mark.parametrize("choice", ["greedy", "beam"])
@pytest.mark.parametrize("cache_implementation", [None, "static"])
def test_left_padding_in_a_batch_does_not_change_the_text(choice, cache_implementation):
    """A prompt alone gives the same text as padded to the length of its neighbour."""
    model, short, long = randomise(make()), ids(batch=1, length=6), ids(batch=1, length=9, seed=2)
    batch = torch.cat((F.pad(short, (3, 0), value=7), long))
    mask = torch.ones_like(batch)
    mask[0, :3] = 0
    settings = CHOICES[choice] | {"num_return_sequences": 1}
    both = generate(model, batch, attention_mask=mask, cache_implementation=cache_implementation, **settings)
    for row, prompt in enumerate((short, long)):
        alone = generate(model, prompt, attention_mask=torch.ones_like(prompt), **settings)
        assert torch.equal(both[row, 9:], alone[0, prompt.shape[1] :])


def test_padded_rows_are_never_generated():
    """Sampling at a heat at which every row is about as likely."""
    model = randomise(make(vocab_size=256, true_vocab_size=101))
    assert generate(model, ids(), do_sample=True, temperature=1e6, top_k=0).max() < 101
