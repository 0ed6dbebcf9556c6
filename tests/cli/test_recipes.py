"""What the verbs that take a recipe share."""

import pytest

from prism_transformer.cli.compare import _parse
from prism_transformer.training.recipe_files import load_recipe


@pytest.mark.parametrize(
    ("recipe", "flags", "calibrates"),
    [
        ("demo", [], True),
        ("demo", ["--calibrate"], True),
        ("demo", ["--no-calibrate"], False),
        ("laptop", ["--calibrate"], True),
        ("laptop", ["--no-calibrate", "--no-compile"], False),
    ],
)
def test_a_flag_that_says_what_the_recipe_says_is_taken(recipe: str, flags: list[str], calibrates: bool) -> None:
    assert load_recipe(recipe).study.get("calibrate", False) == (recipe == "demo")
    assert _parse(["--recipe", recipe, *flags]).study.calibrate is calibrates
