"""A small Llama with grouped heads as a Hugging Face folder, with a tokenizer of its own."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prism_transformer.data.huggingface import HuggingFaceTokenizer

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
    "bos_token_id": None,
}


def llama(folder: Path, **settings: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | settings)).eval()
    with torch.no_grad():  # far from the start, where attention is nearly uniform and a fault hardly shows
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="session")
def llama_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "tiny-llama"
    llama(folder)
    HuggingFaceTokenizer.train(["the cat sees the dog " * 50], vocab_size=290).save(folder)
    return folder
