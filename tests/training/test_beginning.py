"""Training that begins with the weights of another run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from prism_transformer.checkpoint import load_model, save_model
from prism_transformer.data import Corpus, DataSettings
from prism_transformer.errors import InputError
from prism_transformer.evaluation.loading import load
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM
from prism_transformer.settings import from_mapping, read_yaml
from prism_transformer.training.beginning import begin_from
from prism_transformer.training.build import new_model
from prism_transformer.training.loop import train
from prism_transformer.training.recipe import Recipe, with_model, with_training

from .runs import RECIPE, quiet


@pytest.fixture
def source(trained_study):
    return trained_study / "runs" / "prism" / "seed-0"


@pytest.fixture
def recipe(source, trained_study):
    """The recipe of another size, so that what comes from the run is seen."""
    own = from_mapping(Recipe, read_yaml(source / "recipe.yaml"), where="recipe")
    return with_training(with_model(own, layers=2, d_model=64, heads=2, schedule="uniform"), tokens=4 * 256)


@pytest.fixture
def corpus(trained_study):
    return Corpus.open(trained_study / "data")


def test_sizes_schedule_and_tokenizer_come_with_the_run(recipe, source, corpus):
    begun = begin_from(recipe, source)
    assert (begun.model.layers, begun.model.d_model, begun.model.heads) == (4, 32, 4)
    assert (begun.model.schedule, begun.model.context) == ("1x1,2x1,4x2", 32)
    assert begun.model.from_run == str(source.resolve())
    assert begun.training == recipe.training
    reread = Corpus.open(corpus.folder, tokenizer=begun.data.tokenizer)
    assert reread.tokenizer.fingerprint == load(source).tokenizer.fingerprint


@pytest.mark.parametrize("schedule", [None, "4x4"])
def test_the_model_before_its_first_step_is_that_of_the_run(recipe, source, corpus, schedule):
    begun = begin_from(recipe, source)
    begun = with_model(begun, schedule=schedule) if schedule else begun
    model = new_model(begun, corpus)
    assert str(model.config.head_schedule) == (schedule or "1x1,2x1,4x2")
    for name, tensor in load(source).model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_training_goes_on_from_the_weights_and_says_so(recipe, source, corpus, tmp_path):
    begun, said = begin_from(recipe, source), []
    records = []
    train(begun, tmp_path / "more", corpus=corpus, say=said.append, on_record=records.append)
    assert f"beginning with the weights of {source.resolve()}" in said
    fresh = []
    train(with_model(begun, from_run=None), tmp_path / "fresh", corpus=corpus, say=said.append, on_record=fresh.append)
    assert records[0]["loss"] < fresh[0]["loss"] - 0.3
    again = train(begun, tmp_path / "more", corpus=corpus, say=said.append)  # finished: the source is not asked
    assert again["final"]
    assert load(tmp_path / "more", tokenizer=str(corpus.folder / "tokenizer")).identity["step"] == 4


def test_rows_beyond_the_tokenizer_are_padding_from_here_on(recipe, corpus, tmp_path):
    """An imported model may have more rows than its tokenizer has ids."""
    rows = corpus.vocab_size + 20
    config = PrismConfig(hidden_size=32, num_hidden_layers=2, head_schedule=[1, 4], vocab_size=rows, rms_norm_eps=1e-6)
    save_model(PrismForCausalLM(config), tmp_path / "imported", origin={"imported_from": "somewhere"})
    corpus.tokenizer.save(tmp_path / "imported")
    model = new_model(begin_from(recipe, tmp_path / "imported"), corpus)
    assert (model.config.vocab_size, model.config.true_vocab_size) == (rows, corpus.vocab_size)
    assert model.config.rms_norm_eps == 1e-6
    assert torch.equal(model.lm_head.weight, load_model(tmp_path / "imported").lm_head.weight)


def test_what_does_not_fit_the_weights_is_refused(recipe, source, corpus, tmp_path):
    begun = begin_from(recipe, source)
    with pytest.raises(InputError, match=r"layers=3, but the weights of .* have 4; leave it out"):
        new_model(with_model(begun, layers=3, schedule="uniform"), corpus)
    foreign = tmp_path / "llama"
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=400, **sizes)).save_pretrained(foreign)
    corpus.tokenizer.save(foreign)
    with pytest.raises(InputError, match="prism import"):
        begin_from(recipe, foreign)


def test_the_tokenizer_of_a_run_on_other_programs_shards_is_the_one_that_was_named(tmp_path):
    """Such shards bring none of their own."""
    draw = np.random.default_rng(0)
    (tmp_path / "shards").mkdir()
    for name, size in (("other_train_000001.bin", 400), ("other_val_000000.bin", 80)):
        ids = draw.integers(0, 256, size).astype("<u2")
        header = np.zeros(256, "<i4")
        header[:3] = (20240520, 1, size)
        (tmp_path / "shards" / name).write_bytes(header.tobytes() + ids.tobytes())
    recipe = with_training(RECIPE, tokens=2 * 64, evaluations=1)
    recipe = replace(recipe, data=DataSettings(paths=(str(tmp_path / "shards"),), tokenizer="bytes"))
    train(recipe, tmp_path / "run", say=quiet)
    begun = begin_from(recipe, tmp_path / "run")
    assert begun.data.tokenizer == "bytes"
    assert new_model(begun, Corpus.open(tmp_path / "shards", tokenizer="bytes")).config.vocab_size == 257
