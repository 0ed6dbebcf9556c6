"""A run goes on only with the recipe and the text that it is of, but for what the user accepted by name."""

from dataclasses import replace

import pytest

from prism_transformer.errors import InputError
from prism_transformer.settings import to_mapping
from prism_transformer.training.origin import Origin
from prism_transformer.training.recipe import Recipe, with_model, with_training

from .runs import RECIPE

ORIGIN = Origin(RECIPE, "abc", "bytes (123456789012)", {"train_000000.bin": "1", "train_000001.bin": "2"})
FOUND = {"recipe": to_mapping(RECIPE), **ORIGIN.text()}


def refusal(origin: Origin, *allow: str) -> str:
    with pytest.raises(InputError) as caught:
        origin.accepted_changes(FOUND, where="runs/a", allow=allow)
    return str(caught.value)


def of(recipe: Recipe) -> Origin:
    return replace(ORIGIN, recipe=recipe)


def test_the_same_is_no_change():
    assert ORIGIN.accepted_changes(FOUND, where="runs/a", allow=()) == []


CHANGES = {
    "horizon": (of(with_training(RECIPE, tokens=9999)), "training.tokens: 1536 -> 9999"),
    "recipe": (of(replace(RECIPE, optimizer=replace(RECIPE.optimizer, lr=0.5))), "optimizer.lr: 0.01 -> 0.5"),
    "schedule": (of(with_model(RECIPE, schedule="uniform")), "model.schedule: 1x1,4x1 -> uniform"),
    "data": (replace(ORIGIN, data_fingerprint="xyz"), "data.fingerprint: abc -> xyz"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_each_kind_is_refused_with_both_values_and_its_flag_and_accepted_with_it(kind):
    origin, line = CHANGES[kind]
    lines = refusal(origin).splitlines()
    assert lines[0] == "runs/a holds a run with other settings; use another folder:"
    assert lines[1:] == [f"  {line}", f"  to go on with it all the same, add --allow {kind}"]
    others = [other for other in CHANGES if other != kind]
    assert line in refusal(origin, *others)
    assert origin.accepted_changes(FOUND, where="runs/a", allow=[kind]) == [line]


def test_a_tokenizer_is_what_its_fingerprint_says_and_not_the_name_of_its_folder():
    assert replace(ORIGIN, tokenizer="copy (123456789012)").accepted_changes(FOUND, where="runs/a", allow=()) == []
    assert "tokenizer: bytes (123456789012) -> bytes (999)" in refusal(replace(ORIGIN, tokenizer="bytes (999)"))


def test_several_kinds_are_told_at_once():
    origin = of(with_training(RECIPE, tokens=9999, seed=4))
    sentence = refusal(origin)
    assert "training.tokens: 1536 -> 9999" in sentence and "training.seed: 0 -> 4" in sentence
    assert sentence.endswith("add --allow horizon recipe")
    assert "tokens" not in refusal(origin, "horizon")


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (of(with_model(RECIPE, d_model=32)), "model.d_model: 16 -> 32"),
        (of(with_model(RECIPE, rope_theta=5.0)), "model.rope_theta: 10000.0 -> 5.0"),
        (replace(ORIGIN, tokenizer="gpt2 (999)"), "tokenizer: bytes (123456789012) -> gpt2 (999)"),
    ],
)
def test_model_and_tokenizer_are_the_run_and_no_flag_changes_them(origin, line):
    sentence = refusal(origin, "horizon", "recipe", "schedule", "data", "golden")
    assert line in sentence and "a run keeps its model and its tokenizer" in sentence and "--allow" not in sentence


def test_the_files_of_tokens_that_differ_are_named():
    other = replace(ORIGIN, data_fingerprint="xyz", shards={"train_000000.bin": "7", "train_000002.bin": "2"})
    sentence = refusal(other)
    assert "shard train_000000.bin is another one" in sentence
    assert "shard train_000001.bin is missing" in sentence
    assert "shard train_000002.bin is new" in sentence


def test_text_that_only_lies_elsewhere_is_the_same():
    moved = of(replace(RECIPE, data=replace(RECIPE.data, paths=("elsewhere",))))
    assert moved.accepted_changes(FOUND, where="runs/a", allow=()) == []


def test_a_run_says_which_files_its_text_is(corpus):
    origin = Origin.of(RECIPE, corpus)
    assert origin.tokenizer == f"bytes ({corpus.tokenizer.fingerprint[:12]})"
    assert sorted(origin.shards) == ["test_000000.bin", "train_000000.bin", "validation_000000.bin"]
    assert len(set(origin.shards.values())) == 3
