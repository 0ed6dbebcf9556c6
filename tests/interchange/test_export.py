"""What is exported loads elsewhere and answers as the run does."""

import hashlib
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from prism_transformer.checkpoint import save_model
from prism_transformer.data import load_tokenizer
from prism_transformer.errors import InputError
from prism_transformer.evaluation.loading import load
from prism_transformer.interchange import fresh_process
from prism_transformer.interchange.export import export
from prism_transformer.interchange.fresh_process import load_hugging_face
from prism_transformer.interchange.importing import import_folder
from prism_transformer.interchange.tokenizer_files import write_tokenizer
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

TEXT = 'The  cat\'s 3 naïve "tokens":\n\tdef f(x): # ≈ 日本 🙂'


@pytest.fixture(scope="session")
def run(trained_study):
    return trained_study / "runs" / "prism" / "seed-1"


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "small-prism"
    found = export(run, "hf", out)
    assert found.distances["logits"] < 1e-4
    return out


@pytest.mark.slow
def test_the_folder_is_complete(exported):
    assert sorted(path.name for path in exported.iterdir()) == [
        "README.md", "config.json", "configuration_prism.py", "generation_config.json", "golden.safetensors",
        "head_schedule.py", "identity.json", "model.safetensors", "modeling_prism.py", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    auto = json.loads((exported / "config.json").read_text())["auto_map"]
    assert set(auto) == {"AutoConfig", "AutoModel", "AutoModelForCausalLM"}


def test_the_export_is_the_run(exported, run):
    there, here = load(exported), load(run)
    for name, tensor in here.model.state_dict().items():
        assert torch.equal(there.model.state_dict()[name], tensor), name
    assert there.identity["step"] == here.identity["step"] == 12
    assert there.identity["data_fingerprint"] == here.identity["data_fingerprint"]
    assert there.tokenizer.encode(TEXT) == here.tokenizer.encode(TEXT)
    assert there.start == here.start


def test_the_card_says_what_the_model_is(exported):
    card = (exported / "README.md").read_text()
    assert "| 0 | 1 | 32 |\n| 1 | 2 | 16 |\n| 2–3 | 4 | 8 |" in card
    assert "at most 1." in card  # the greatest common divisor of 1, 2 and 4 heads
    assert re.search(r"validation loss \d\.\d{4} nats per token, \d\.\d{4} bits per byte at step 12", card)
    assert "step 12 of seed 1, 256 tokens a step, peak learning rate 0.01" in card


@pytest.mark.slow
def test_the_snippet_of_the_card_runs(exported):
    snippet = re.search(r"```python\n(.*?)```", (exported / "README.md").read_text(), re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, cwd=exported.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("<|endoftext|>The")


@pytest.mark.slow
def test_a_change_after_the_export_is_noticed(exported, tmp_path):
    copy = shutil.copytree(exported, tmp_path / "copy")
    golden = load_file(copy / "golden.safetensors")
    golden["logits"][0, 0] += 1
    save_file(golden, copy / "golden.safetensors")
    assert load_hugging_face(copy, copy, text="x", ids=None)["logits"] == pytest.approx(1, abs=1e-3)


def test_what_does_not_load_is_told_and_not_left_behind(run, tmp_path, monkeypatch):
    monkeypatch.setattr(fresh_process, "_LOAD_HUGGING_FACE", "raise OSError('no such thing')")
    told = f"{tmp_path / 'out'}: what was exported does not load in a fresh process: OSError: no such thing; nothing"
    with pytest.raises(InputError, match=f"^{re.escape(told)} was written$"):
        export(run, "hf", tmp_path / "out")
    monkeypatch.setattr(fresh_process, "_LOAD_HUGGING_FACE", 'print(\'{"logits": 0.5, "heads": [1, 2, 4, 4]}\')')
    monkeypatch.setattr("prism_transformer.interchange.export._same_ids", lambda *_: None)
    with pytest.raises(InputError, match=r"answers otherwise: logits differ by 0\.5"):
        export(run, "hf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["bytes", "gpt2"])
def test_tokenizers_with_formats_of_their_own_are_the_same_for_autotokenizer(tmp_path, name):
    tokenizer = load_tokenizer(name)
    write_tokenizer(tokenizer, tmp_path, context=32)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    texts = [TEXT, "", " ", "\n\n  x", "a" * 300, "".join(map(chr, range(32, 1200)))]
    for text in texts:
        assert theirs(text).input_ids == [tokenizer.end_of_text, *tokenizer.encode(text)]
        assert theirs.decode(tokenizer.encode(text)) == text
    assert (len(theirs), theirs.eos_token_id) == (tokenizer.vocab_size, tokenizer.end_of_text)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


@pytest.mark.slow
def test_an_imported_model_is_exported_with_the_tokenizer_of_its_source(llama_once, tmp_path):
    import_folder(llama_once, tmp_path / "run", schedule="1,2,4")
    export(tmp_path / "run", "hf", tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (llama_once / name).read_bytes()
    assert "an initialisation: the model needs training" in (tmp_path / "out" / "README.md").read_text()
    assert load(tmp_path / "out").identity["needs_training"]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    assert theirs.config.head_schedule.heads == (1, 2, 4)


# ONNX


@pytest.fixture(scope="module")
def onnx(tmp_path_factory):
    """A model with a padded vocabulary, its graph, and a session."""
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("onnx")
    config = PrismConfig(
        hidden_size=32, num_hidden_layers=3, head_schedule=[1, 2, 4], vocab_size=320, true_vocab_size=257,
        max_position_embeddings=64, bos_token_id=256, eos_token_id=256,
    )  # fmt: skip
    model = PrismForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    save_model(model, folder / "run", origin={})
    load_tokenizer("bytes").save(folder / "run")
    found = export(folder / "run", "onnx", folder / "out")
    session = onnxruntime.InferenceSession(folder / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    return model, found, session, folder / "out"


def run_onnx(session, ids, mask, past=None):
    if past is None:
        past = {
            each.name: np.zeros((len(ids), each.shape[1], 0, each.shape[3]), np.float32)
            for each in session.get_inputs()
            if each.name.startswith("past")
        }
    out = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy(), **past})
    names = [each.name for each in session.get_outputs()]
    cache = {
        name.replace("present.", "past_key_values."): value for name, value in zip(names[1:], out[1:], strict=True)
    }
    return torch.from_numpy(out[0]), cache


def test_the_graph_answers_as_the_model_for_a_prompt_and_token_by_token(onnx):
    _, found, session, _ = onnx
    assert set(found.distances) == {"prefill", "decode"}
    assert max(found.distances.values()) < 1e-4
    assert {"model.onnx", "model.onnx.data", "golden.safetensors", "README.md", "bytes.json"} <= set(found.files)
    assert not {"model.safetensors", "modeling_prism.py"} & set(found.files)
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert [shapes[f"past_key_values.{layer}.key"][1::2] for layer in range(3)] == [[1, 32], [2, 16], [4, 8]]


def test_the_identity_of_a_graph_is_about_the_files_that_are_there(onnx):
    *_, folder = onnx
    identity = json.loads((folder / "identity.json").read_text())
    assert set(identity["sha256"]) == {
        "config.json", "configuration_prism.py", "generation_config.json", "golden.safetensors", "head_schedule.py",
        "model.onnx", "model.onnx.data",
    }  # fmt: skip
    for name, stated in identity["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == stated, name
    with pytest.raises(InputError, match="a graph for onnxruntime and no weights"):
        load(folder)
    code = (
        "import sys; sys.modules['prism_transformer'] = None; from transformers import AutoConfig; "
        "print(AutoConfig.from_pretrained('out', trust_remote_code=True).head_schedule.heads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder.parent)
    assert done.stdout.strip() == "(1, 2, 4)", done.stderr[-2000:]


@torch.no_grad()
def test_the_graph_generates_what_the_model_generates_from_padded_prompts(onnx):
    model, _, session, _ = onnx
    ids = torch.tensor([[256, 256, 256, 72, 105], [256, 84, 104, 101, 32]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(ids, attention_mask=mask, **settings)[:, 5:]
    logits, cache = run_onnx(session, ids, mask)
    assert torch.isinf(logits[..., 257:]).all()
    found = [logits[:, -1:].argmax(-1)]
    for _ in range(5):
        mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
        logits, cache = run_onnx(session, found[-1], mask, cache)
        found.append(logits[:, -1:].argmax(-1))
    assert torch.equal(torch.cat(found, dim=1), expected)


# What is refused


@pytest.mark.parametrize(
    ("target", "told"),
    [("gguf", r"two head dims at most.*32, 16, 8; take hf or onnx"), ("onxn", "did you mean 'onnx'"), ("tf", "hf")],
)
def test_a_target_that_cannot_hold_the_schedule_is_refused_with_the_reason(run, tmp_path, target, told):
    with pytest.raises(InputError, match=told):
        export(run, target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_uniform_model_for_gguf_is_told_the_way(trained_study, tmp_path):
    with pytest.raises(InputError, match="exactly a Llama"):
        export(trained_study / "runs" / "uniform" / "seed-0", "gguf", tmp_path / "out")


def test_a_foreign_model_and_a_taken_folder_are_refused(llama_once, run, tmp_path):
    with pytest.raises(InputError, match="no model of this package, but llama"):
        export(llama_once, "hf", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing is overwritten"):
        export(run, "hf", tmp_path / "out")
