"""Llama-style folders become models here, with the same logits, or are refused with the reason."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from prism_transformer.checkpoint import load_model
from prism_transformer.errors import InputError
from prism_transformer.evaluation.loading import load
from prism_transformer.interchange.importing import import_folder

from .conftest import llama

IDS = torch.randint(0, 300, (2, 24), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def source(llama_once, tmp_path):
    return shutil.copytree(llama_once, tmp_path / "source")


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 2},
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rms_norm_eps": 1e-3},
    ],
)
def test_logits_are_those_of_the_llama(tmp_path, settings):
    theirs = llama(tmp_path / "source", **settings)
    imported = import_folder(tmp_path / "source", tmp_path / "out")
    ours = load_model(tmp_path / "out")
    assert (ours(IDS).logits - theirs(IDS).logits).abs().max() < 1e-5
    assert imported.distance < 1e-5
    assert imported.repeats == 4 // settings.get("num_key_value_heads", 2)
    assert (imported.parameters, imported.source_parameters) == (ours.num_parameters(), theirs.num_parameters())
    assert str(ours.config.head_schedule) == imported.head_schedule == "4x3"


@torch.no_grad()
def test_sharded_and_rounded_weights_are_taken_as_they_are(source, tmp_path):
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    shutil.rmtree(source)
    model.save_pretrained(source, max_shard_size="40KB")
    assert len(list(source.glob("*.safetensors"))) > 1
    import_folder(source, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    assert (load_model(tmp_path / "out")(IDS).logits - model.float()(IDS).logits).abs().max() < 1e-5


@torch.no_grad()
def test_another_schedule_keeps_the_weights_and_is_labelled(source, tmp_path):
    imported = import_folder(source, tmp_path / "out", schedule="1,2,4")
    identity = json.loads((tmp_path / "out" / "identity.json").read_text())
    assert imported.distance is None
    assert (identity["needs_training"], identity["source_head_schedule"]) == (True, "4x3")
    assert (identity["head_schedule"], identity["imported_from"]) == ("1x1,2x1,4x1", "source")
    same = import_folder(source, tmp_path / "same")
    assert same.head_schedule == "4x3"
    ours, plain = load_file(tmp_path / "out" / "model.safetensors"), load_file(tmp_path / "same" / "model.safetensors")
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    logits = [load_model(tmp_path / name)(IDS).logits for name in ("out", "same")]
    assert (logits[0] - logits[1]).abs().max() > 1e-2


def test_an_imported_folder_is_a_run(source, tmp_path):
    import_folder(source, tmp_path / "out")
    loaded, original = load(tmp_path / "out"), load(source)
    assert loaded.tokenizer.fingerprint == original.tokenizer.fingerprint
    assert loaded.start == original.start
    assert loaded.context == 64


def test_a_model_may_have_more_rows_than_its_tokenizer_ids(source, tmp_path):
    """290 or fewer ids, 300 rows: as in the source, no row is masked."""
    import_folder(source, tmp_path / "out")
    loaded = load(tmp_path / "out")
    assert loaded.tokenizer.vocab_size < loaded.model.config.vocab_size == 300
    assert loaded.model(IDS).logits.isfinite().all()


@torch.no_grad()
def test_the_other_tools_load_what_was_imported(source, tmp_path):
    import_folder(source, tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    assert (theirs(IDS).logits - load_model(tmp_path / "out")(IDS).logits).abs().max() < 1e-6


# What is refused


def no_config(folder):
    (folder / "config.json").unlink()


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lost_shard(folder):
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32)
    tensors["model.norm.weight"] = torch.zeros(31)
    save_file(tensors, folder / "model.safetensors")


def small_vocabulary(folder):
    llama(folder, vocab_size=200)


REFUSED = {
    "no config": (no_config, ["no config.json"]),
    "no weights": (no_weights, ["has no weights"]),
    "pickle": (pickled, ["pytorch_model.bin, which can run code", "save_pretrained"]),
    "truncated": (truncated, ["model.safetensors is cut short or not a safetensors file"]),
    "lost shard": (lost_shard, ["model-00001-of-00002.safetensors is missing"]),
    "tensors": (
        without_a_tensor,
        [
            "lack model.layers.1.self_attn.q_proj.weight",
            "have model.layers.0.self_attn.q_proj.bias, which",
            r"model.norm.weight has the shape \[31\], but config.json makes it \[32\]",
        ],
    ),
    "vocabulary": (small_vocabulary, ["200 ids, but its tokenizer has"]),
    "foreign": (lambda f: edit_config(f, model_type="gpt2"), ["model_type 'gpt2' cannot be imported"]),
    "no type": (lambda f: edit_config(f, model_type=None), ["model_type None cannot be imported"]),
    "ours": (lambda f: edit_config(f, model_type="prism"), ["give it as a RUN"]),
    "head dim": (lambda f: edit_config(f, head_dim=16), [r"head_dim=16, but d_model / heads = 32 / 4"]),
    "rope": (
        lambda f: edit_config(f, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
        [r"RoPE is scaled \(linear\)"],
    ),
    "bias": (lambda f: edit_config(f, attention_bias=True, mlp_bias=True), ["attention_bias is on", "mlp_bias is on"]),
    "activation": (lambda f: edit_config(f, hidden_act="gelu"), ["hidden_act='gelu'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_imported_is_refused_and_leaves_nothing(source, tmp_path, case):
    spoil, sentences = REFUSED[case]
    spoil(source)
    with pytest.raises(InputError) as caught:
        import_folder(source, tmp_path / "out")
    for sentence in sentences:
        assert caught.match(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("schedule", "told"),
    [("4,4", "2 head counts for 3 layers"), ("5x3", "does not divide d_model=32"), ("sweep", "name one"),
     ("prsim", "prism"), ("32x3", "odd")],
)  # fmt: skip
def test_a_schedule_that_does_not_fit_is_refused(source, tmp_path, schedule, told):
    with pytest.raises(InputError, match=told):
        import_folder(source, tmp_path / "out", schedule=schedule)


def test_nothing_is_overwritten(source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing is overwritten"):
        import_folder(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
    with pytest.raises(InputError, match="no such folder"):
        import_folder(tmp_path / "absent", tmp_path / "new")
