"""The recipes that are shipped: each can be dry-run, and the paper's have the paper's sizes."""

import json
from pathlib import Path

import pytest

from prism_transformer.cli import main
from prism_transformer.errors import InputError
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed
from prism_transformer.training.recipe_files import load_recipe, recipe_names

PAPER = {  # millions of parameters with 50,304 rows; the paper's schedules (section 4)
    "small": (123.6, "3x2,6x2,8x2,12x6", 2_883_584_000),
    "medium": (353.5, "4x3,8x3,16x18", 10_485_760_000),
    "large": (756.8, "6x3,12x3,16x18", 20_971_520_000),
}


def test_the_names_are_those_that_the_help_lists() -> None:
    assert set(recipe_names()) == {"demo", "laptop", "small", "medium", "large"}


@pytest.fixture
def dry_run(capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch):
    """dry_run(verb, recipe): its plan, in an empty folder, at a speed that is not measured."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setattr(speed, "training_speed", lambda recipe, vocab_size, **_: Speed(1000.0, "measured here"))

    def of(verb: str, recipe: str) -> dict[str, object]:
        assert main([verb, "--recipe", recipe, "--dry-run", "--json"]) == 0
        plan: dict[str, object] = json.loads(capsys.readouterr().out)
        return plan

    return of


@pytest.mark.parametrize("name", recipe_names())
def test_prism_train_dry_runs(name: str, dry_run) -> None:
    plan = dry_run("train", name)
    recipe = load_recipe(name).recipe
    assert plan["tokens"] == recipe.training.tokens, "whole steps"
    assert len(plan["head_dims"]) == recipe.model.layers
    if name in PAPER:
        millions, schedule, tokens = PAPER[name]
        assert round(plan["parameters"] / 1e6, 1) == millions
        assert (plan["head_schedule"], plan["tokens"], plan["vocab_size"]) == (schedule, tokens, 50_304)


@pytest.mark.parametrize("name", recipe_names())
def test_prism_compare_dry_runs(name: str, dry_run) -> None:
    plan = dry_run("compare", name)
    file = load_recipe(name)
    ruler = ["fewer-tokens", "other-seed"] if file.study.get("calibrate") else []
    assert list(plan["heads"]) == ["uniform", "prism", *ruler]
    assert plan["runs"] == len(plan["heads"]) * plan["seeds"]
    if name in PAPER:
        millions, schedule, tokens = PAPER[name]
        assert round(plan["parameters"] / 1e6, 1) == millions
        assert plan["heads"]["prism"] == schedule
        assert (plan["seeds"], plan["tokens"]) == (3, 2 * 3 * tokens)


@pytest.mark.parametrize("name", ["demo", "laptop"])
def test_the_small_recipes_leave_a_core_to_each_run(name: str) -> None:
    """One thread suits such models better than two, and their losses must not depend on the cores."""
    assert load_recipe(name).recipe.device.threads == 1


@pytest.mark.parametrize("name", recipe_names("paper"))
def test_the_paper_s_studies_dry_run(name: str, dry_run) -> None:
    plan = dry_run("compare", name)
    file = load_recipe(name)
    arms = {"paper/ablation": 9, "paper/controls": 11, "paper/rehearsal": 2, "paper/shape": 9}[name]
    assert (plan["arms"], plan["runs"]) == (arms, arms * file.study["seeds"])
    if name in ("paper/ablation", "paper/controls"):
        assert file.recipe == load_recipe("small").recipe, "its base, unchanged"
        assert plan["tokens"] == arms * 3 * PAPER["small"][2]
    else:
        assert dry_run("train", name)["steps"] == {"paper/rehearsal": 40, "paper/shape": 1000}[name]


@pytest.mark.parametrize("base", ["smal", "7", "[a]"])
def test_a_base_that_is_no_recipe_is_named(base: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"base: {base}\nstudy: {{seeds: 4}}\n")
    with pytest.raises(InputError, match="is no recipe"):
        load_recipe(tmp_path / "mine.yaml")
