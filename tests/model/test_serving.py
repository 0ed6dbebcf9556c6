"""What vLLM's Transformers backend asks of a model, without vLLM: it brings its own attention, cache and linear layers.

It makes the body by AutoModel from the folder's own code, without weights; reads the heads of each layer from the
configuration; sets its attention function, which gets its state through keyword arguments; runs one flat sequence of
tokens at the positions that it counts itself, without cache or mask; and loads the weights by their names.
"""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from transformers import AttentionInterface, AutoConfig, AutoModel, PreTrainedModel

from .models import RAGGED, ids, make, randomise


class Attention:
    """The attention of one layer as an engine has it: made for heads and head size from the configuration, and keeping
    the keys and values of the sequence itself."""

    def __init__(self, num_heads, head_size):
        self.num_heads, self.head_size = num_heads, head_size
        self.keys = self.values = torch.zeros(0, num_heads, head_size)

    def forward(self, query, key, value, scale):
        q, k, v = (x.view(-1, self.num_heads, self.head_size) for x in (query, key, value))
        self.keys, self.values = torch.cat((self.keys, k)), torch.cat((self.values, v))
        order = torch.arange(len(self.keys))
        seen = order[None] <= order[-len(q) :, None]
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1), self.keys.transpose(0, 1), self.values.transpose(0, 1), attn_mask=seen, scale=scale
        )
        return out.transpose(0, 1).reshape(len(q), -1)  # [tokens, heads * head size], as engines return it


def engine_attention(module, query, key, value, attention_mask, scaling=None, attention_instances=None, **kwargs):
    tokens = query.shape[-2]
    flat = [x.transpose(1, 2).reshape(tokens, -1) for x in (query, key, value)]
    return attention_instances[module.layer_idx].forward(*flat, scaling), None


class ReplicatedLinear(nn.Module):
    """A linear layer of the engine's own."""

    def __init__(self, old):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(old.out_features, old.in_features))

    def forward(self, x):
        return F.linear(x, self.weight)


def replace_linears(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, ReplicatedLinear(child))
        else:
            replace_linears(child)


@pytest.fixture
def folder(tmp_path):
    randomise(make()).save_pretrained(tmp_path)
    return tmp_path


def body_of(folder):
    """The body as the engine builds it: parameters on no device, buffers as they are, then the weights by name."""
    AttentionInterface.register("engine", engine_attention)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    config._attn_implementation = "engine"
    body = AutoModel.from_config(config, trust_remote_code=True)
    assert isinstance(body, PreTrainedModel) and body._supports_attention_backend
    replace_linears(body)
    weights = {name.removeprefix("model."): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    body.load_state_dict(weights, strict=True)
    instances = {
        layer: Attention(each.num_attention_heads, config.hidden_size // each.num_attention_heads)
        for layer, each in enumerate(config.per_layer_config)
    }
    return body.eval(), instances


@torch.no_grad()
def test_an_engine_with_its_own_attention_and_cache_writes_the_same_text(folder):
    body, instances = body_of(folder)
    assert [each.num_heads for each in instances.values()] == RAGGED
    model, prompt = randomise(make()), ids(batch=1, length=7)
    expected = model.generate(prompt, max_new_tokens=10, do_sample=False, pad_token_id=0)[0, 7:].tolist()
    tokens, position, found = prompt[0], 0, []
    for _ in range(10):
        hidden = body(
            input_ids=tokens[None],
            use_cache=False,
            position_ids=torch.arange(position, position + len(tokens))[None],
            attention_instances=instances,
            return_dict=False,
        )[0][0]
        position += len(tokens)
        tokens = (hidden[-1:] @ body.embed_tokens.weight.T).argmax(-1)  # tied: the engine computes the logits itself
        found += tokens.tolist()
    assert found == expected


def test_the_configuration_says_that_layers_differ(folder):
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert config.is_heterogeneous
    with pytest.raises(Exception, match="per-layer attribute"):  # no engine can take one number for all
        _ = config.num_attention_heads
    assert not hasattr(config, "head_dim")


def test_the_loss_of_a_wrong_head_count_is_seen(folder):
    """An engine that plans with the base heads for every layer cannot give the same text."""
    body, instances = body_of(folder)
    wrong = {layer: Attention(6, 8) for layer in instances}
    with torch.no_grad():
        settings = {"input_ids": ids(batch=1), "use_cache": False, "return_dict": False}
        right = body(**settings, attention_instances=instances)[0]
        assert (body(**settings, attention_instances=wrong)[0] - right).abs().max() > 1e-2
