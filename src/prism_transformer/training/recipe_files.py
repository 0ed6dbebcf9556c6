"""Recipes by name, from those that the package ships, and from YAML files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..settings import from_mapping, nearest, read_yaml
from .recipe import Recipe


@dataclass(frozen=True)
class RecipeFile:
    """A recipe and the study settings that stand beside it in its file; `prism train` has no use for those."""

    name: str
    recipe: Recipe
    study: dict[str, Any]


def recipe_names(folder: str = "") -> list[str]:
    """The recipes that the package ships; those of the folder "paper" are named with it: paper/ablation."""
    place = _shipped() / folder if folder else _shipped()
    prefix = f"{folder}/" if folder else ""
    return sorted(prefix + p.name.removesuffix(".yaml") for p in place.iterdir() if p.name.endswith(".yaml"))


def load_recipe(source: str | Path) -> RecipeFile:
    """Read a recipe that the package ships, by its name, or a YAML file. Raises InputError."""
    names = [*recipe_names(), *recipe_names("paper")]
    if str(source) in names:
        with resources.as_file(_shipped() / f"{source}.yaml") as path:
            return _parse(str(source), read_yaml(path))
    path = Path(source).expanduser()
    if path.suffix in (".yaml", ".yml") or path.exists():
        return _parse(path.stem, read_yaml(path))
    raise InputError(f"no recipe or YAML file {str(source)!r}; {nearest(str(source), names)}")


def _shipped() -> Any:
    return resources.files("prism_transformer") / "recipes"


def _parse(name: str, values: dict[str, Any]) -> RecipeFile:
    """What a file states, over the shipped recipe that it names as its base."""
    values = dict(values)
    base = _base(name, values.pop("base")) if "base" in values else None
    study = values.pop("study", None) or {}
    if not isinstance(study, dict):
        raise InputError(f"recipe {name}: study must be a mapping of settings, not {study!r}")
    recipe = from_mapping(Recipe, values, where=f"recipe {name}", default=base.recipe if base else None)
    return RecipeFile(name, recipe, (base.study if base else {}) | study)


def _base(name: str, base: Any) -> RecipeFile:
    if base not in recipe_names():
        raise InputError(f"recipe {name}: base={base!r} is no recipe; {nearest(str(base), recipe_names())}")
    return load_recipe(base)
