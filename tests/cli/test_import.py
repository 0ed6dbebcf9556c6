"""prism import, and its way on into the other verbs."""

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prism_transformer.cli import main
from prism_transformer.data.tokenizer import ByteTokenizer
from prism_transformer.interchange.tokenizer_files import write_tokenizer


@pytest.fixture
def llama(in_empty_folder):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 300}
    LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).save_pretrained("llama")


def test_what_was_done_is_said_in_a_few_lines(llama, capsys):
    assert main(["import", "llama", "--out", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("llama, ")
    assert "each is repeated 2 times, which is exact but larger" in lines[1]
    assert "no tokenizer in the folder" in lines[2]
    assert "heads per layer 4x2, as in the source: its logits are kept" in lines[3]
    assert lines[4] == "imported: run"


def test_rows_without_a_token_are_counted(llama, capsys):
    """A byte-level BPE without merges: 256 bytes and end-of-text, for 300 rows."""
    write_tokenizer(ByteTokenizer(), Path("llama"), context=64)
    assert main(["import", "llama", "--out", "run"]) == 0
    assert "43 rows of the vocabulary have no token; prism generate never picks them" in capsys.readouterr().out


def test_another_schedule_says_that_it_needs_training(llama, capsys):
    assert main(["import", "llama", "--out", "run", "--schedule", "1,4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["head_schedule"], found["source_schedule"], found["distance"]) == ("1x1,4x1", "4x2", None)
    assert main(["import", "llama", "--out", "other", "--schedule", "1,4"]) == 0
    assert "an initialisation that needs training" in " ".join(capsys.readouterr().out.split())
    assert main(["generate", "run", "hello", "--tokenizer", "bytes", "--max-tokens", "2"]) == 0
    assert "they need training" in capsys.readouterr().err


def test_what_cannot_be_imported_ends_with_exit_code_2(llama, capsys):
    assert main(["import", "absent", "--out", "run"]) == 2
    assert capsys.readouterr().err == (
        "error: absent: no such folder; give the folder of a Llama-style model in Hugging Face layout\n"
    )
