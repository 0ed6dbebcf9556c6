"""What can be given as a RUN, and what is refused."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import processors
from transformers import LlamaConfig, LlamaForCausalLM

from prism_transformer.data import load_tokenizer
from prism_transformer.errors import InputError
from prism_transformer.evaluation.loading import load, name_of


@pytest.fixture
def run(trained_study, tmp_path):
    """A copy of a run with its study around it."""
    shutil.copytree(trained_study, tmp_path / "study")
    return tmp_path / "study" / "runs" / "prism" / "seed-1"


def test_a_run_of_a_study_knows_its_arm_seed_step_and_text(trained_study):
    loaded = load(trained_study / "runs" / "prism" / "seed-1")
    assert (loaded.arm, loaded.seed, loaded.step, loaded.context) == ("prism", 1, 12, 32)
    assert loaded.name == "prism seed 1"
    assert loaded.corpus is not None and loaded.tokenizer is loaded.corpus.tokenizer
    assert loaded.start.always and loaded.start.id == loaded.tokenizer.end_of_text
    assert loaded.describe()["head_schedule"] == "1x1,2x1,4x2"
    assert not loaded.model.training


def test_a_checkpoint_is_the_same_model(trained_study):
    run = trained_study / "runs" / "prism" / "seed-0"
    checkpoint = load(run / "checkpoints" / "step-000012")
    whole = load(run)
    assert checkpoint.run == run.resolve() and checkpoint.seed == 0
    assert checkpoint.arm == "prism step-000012"  # another checkpoint of the run is to be told apart
    assert [name_of(each) for each in (run, checkpoint.path)] == [whole.name, checkpoint.name]
    for a, b in zip(checkpoint.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def export(run, folder, *, bos: bool):
    """The checkpoint and its tokenizer in one folder, as other tools want it."""
    loaded = load(run)
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save(folder)
    if bos:
        tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
        end = ("<|endoftext|>", loaded.tokenizer.end_of_text)
        tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[end])
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_an_exported_folder_is_scored_by_the_policy_of_training(trained_study, tmp_path):
    folder = export(trained_study / "runs" / "prism" / "seed-0", tmp_path / "exported", bos=False)
    loaded = load(folder)
    assert (loaded.run, loaded.corpus, loaded.step, loaded.seed) == (None, None, None, None)
    assert loaded.start.always and loaded.start.sentence == "end-of-text before each text, as in training"
    assert loaded.tokenizer.encode("The cat sees the dog.")


def llama(folder, *, vocab_size=300, **settings):
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, **settings,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_foreign_model_is_scored_as_its_tokenizer_does(tmp_path, adds_bos):
    from prism_transformer.data.huggingface import HuggingFaceTokenizer

    folder = llama(tmp_path / "llama")
    HuggingFaceTokenizer.train(["the cat sees the dog " * 50], vocab_size=290).save(folder)
    state = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(state | {"bos_token": "<|endoftext|>"}))
    if adds_bos:
        tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
        end = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[end])
        tokenizer.save(str(folder / "tokenizer.json"))
    loaded = load(folder)
    assert loaded.start.always == adds_bos
    assert loaded.start.id == load_tokenizer(folder).end_of_text
    assert loaded.describe()["head_schedule"] is None


def test_an_altered_schedule_is_refused(run):
    path = run / "checkpoints" / "step-000012" / "config.json"
    config = json.loads(path.read_text())
    del config["per_layer_config"]
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="weights were trained with 1x1,2x1,4x2"):
        load(run)


def test_another_text_is_refused(run, tmp_path):
    study = run.parents[2]
    manifest = json.loads((study / "data" / "manifest.json").read_text())
    shutil.rmtree(study / "data")
    from prism_transformer.data import DataSettings, prepare

    text = tmp_path / "other.txt"
    text.write_text("Something else altogether, and long enough. " * 200)
    prepare(DataSettings(paths=(str(text),), vocab_size=300), study / "data", say=lambda line: None)
    assert manifest
    with pytest.raises(InputError, match=r"is not the text that .* was trained on"):
        load(run)


def test_a_lost_text_is_named_and_the_tokenizer_can_be_given(run):
    study = run.parents[2]
    shutil.move(study / "data" / "tokenizer", study / "kept-tokenizer")
    shutil.rmtree(study / "data")
    with pytest.raises(InputError, match=r"the text of its run is not here.*--tokenizer"):
        load(run)
    assert load(run, tokenizer=str(study / "kept-tokenizer")).corpus is None
    with pytest.raises(InputError, match="the tokenizer bytes has 257: it is not the one"):
        load(run, tokenizer="bytes")


@pytest.mark.parametrize("make", ["nothing", "file", "empty", "unfinished", "broken"])
def test_what_is_no_model_is_named(tmp_path, make):
    path = tmp_path / "thing"
    if make == "file":
        path.write_text("x")
    elif make != "nothing":
        path.mkdir()
    if make == "unfinished":
        (path / "recipe.yaml").write_text("{}")
    if make == "broken":
        (path / "config.json").write_text('{"model_type": "llama"}')
    told = {
        "nothing": "no such folder",
        "file": "no such folder",
        "empty": "it has no config.json",
        "unfinished": "no checkpoint yet",
        "broken": "transformers cannot load it",
    }
    with pytest.raises(InputError, match=told[make]):
        load(path)
