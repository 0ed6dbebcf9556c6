"""The claims of docs/in-my-own-trainer.md: its snippets run, and compute what they say."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

PAGE = Path(__file__).resolve().parents[1] / "docs" / "in-my-own-trainer.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The names of the page after all of its snippets were run in an empty folder."""
    folder = tmp_path_factory.mktemp("page")
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for snippet in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            exec(compile(snippet, PAGE.name, "exec"), names)
    return names | {"folder": folder}


def test_the_losses_are_judged(page):
    from prism_transformer.cli import main

    assert main(["report", "--from", str(page["folder"] / "losses.csv"), "--out", str(page["folder"] / "judged")]) == 0
    assert (page["folder"] / "judged" / "report.html").is_file()


def test_arms_of_one_seed_start_equal_and_are_reproducible(page):
    first, second = page["train"]("prism", 0, steps=2), page["train"]("prism", 0, steps=2)
    assert first[1] == second[1] != page["train"]("uniform", 0, steps=2)[1]


@torch.no_grad()
def test_attention_in_an_own_block_is_that_of_the_model(page):
    """The block alone, without a mask, against its layer within the model."""
    from prism_transformer.model import PrismForCausalLM

    torch.manual_seed(0)
    model, seen = PrismForCausalLM(page["config"]).eval(), {}
    inside = model.model.layers[1].self_attn

    def keep(module, args, kwargs, output):
        seen["in"], seen["out"] = args[0], output[0]

    inside.register_forward_hook(keep, with_kwargs=True)
    model(torch.arange(10)[None])
    page["attention"].load_state_dict(inside.state_dict())
    found, _ = page["attention"](seen["in"], *page["rotary"](torch.arange(10)[None], torch.float32), mask=None)
    torch.testing.assert_close(found, seen["out"])


@torch.no_grad()
def test_the_nanogpt_like_layers_have_the_heads_of_the_schedule(page):
    """Head by head, by the definition of attention."""
    x_BTD = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(0))
    for layer, n_head in zip(page["layers"], [1, 2, 4, 4], strict=True):
        width = 32 // n_head
        q, k, v = layer.c_attn(x_BTD)[0].chunk(3, dim=1)
        heads = []
        for head in range(n_head):
            cut = slice(head * width, (head + 1) * width)
            scores = (q[:, cut] @ k[:, cut].T / width**0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
            heads.append(scores.softmax(-1) @ v[:, cut])
        expected = torch.cat(heads, dim=1) @ layer.c_proj.weight.T
        torch.testing.assert_close(layer(x_BTD)[0], expected)


IDS = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(1))


def grown(model):
    """Weights at which attention is far from uniform, so that a fault shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model.eval()


def changed_llama(page, heads=(1, 2, 4, 4)):
    llama = page["LlamaForCausalLM"](page["llama_config"])
    page["set_head_schedule"](llama, heads)
    return grown(llama)


def prism_of(page, llama):
    prism = page["PrismForCausalLM"](page["prism"].config).eval()
    prism.load_state_dict(llama.state_dict())
    return prism


@torch.no_grad()
def test_the_changed_llama_computes_what_the_model_computes(page):
    llama = changed_llama(page)
    prism = prism_of(page, llama)
    torch.testing.assert_close(llama(IDS).logits, prism(IDS).logits, atol=1e-4, rtol=1e-4)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    for cache in (None, "static"):
        text = llama.generate(IDS, cache_implementation=cache, **settings)
        assert torch.equal(text, prism.generate(IDS, **settings))


@torch.no_grad()
def test_the_ways_it_goes_wrong_go_wrong(page, tmp_path):
    llama = changed_llama(page)
    right = llama(IDS).logits
    for layer in llama.model.layers:  # the scale of the old head dim: no error
        layer.self_attn.scaling = 8**-0.5
    assert (llama(IDS).logits - right).abs().max() > 1e-2
    llama = changed_llama(page)
    llama.model.layers[0].self_attn._forward_pre_hooks.clear()  # the model's own table
    with pytest.raises(RuntimeError, match="size of tensor"):
        llama(IDS)
    changed_llama(page).save_pretrained(tmp_path)  # the identity is lost: loads into uniform heads
    loaded = page["LlamaForCausalLM"].from_pretrained(tmp_path).eval()
    assert (loaded(IDS).logits - right).abs().max() > 1e-2


def test_what_was_moved_is_saved_with_its_schedule(page):
    moved = page["PrismForCausalLM"].from_pretrained(page["folder"] / "moved")
    assert moved.config.head_schedule.heads == (1, 2, 4, 4)
    hidden = page["llama"].state_dict()["model.norm.weight"]
    assert F.mse_loss(moved.model.norm.weight, hidden) == 0
