"""Recipes by name and from files."""

import pytest

from prism_transformer.errors import InputError
from prism_transformer.settings import from_mapping, to_mapping
from prism_transformer.training.recipe import ModelSettings, OptimizerSettings, Recipe
from prism_transformer.training.recipe_files import load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_legal(name):
    file = load_recipe(name)
    file.recipe.check()
    assert file.name == name
    assert from_mapping(Recipe, to_mapping(file.recipe), where=name) == file.recipe


def test_a_recipe_is_read_from_a_file_and_its_study_kept_apart(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: {layers: 2}\noptimizer:\n  lr: 3e-4\ntraining:\nstudy: {seeds: 7}\n")
    file = load_recipe(path)
    assert file.name == "mine"
    assert file.recipe == Recipe(model=ModelSettings(layers=2), optimizer=OptimizerSettings(lr=3e-4))
    assert file.study == {"seeds": 7}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("demoo", "no recipe.* 'demoo'; did you mean 'demo'"),
        ("paper/ablaton", "did you mean 'paper/ablation'"),
        ("absent.yaml", r"absent\.yaml cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
    ],
)
def test_an_unknown_recipe_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        load_recipe(source)


def test_a_misspelt_key_in_a_file_is_named(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("training:\n  micro_bach: 4\nlr: 3e-4\n")
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    assert sorted(caught.value.problems) == [
        "recipe mine.training: no setting 'micro_bach'; did you mean 'micro_batch'?",
        "recipe mine: no setting 'lr'; it belongs in optimizer, as optimizer.lr",
    ]
