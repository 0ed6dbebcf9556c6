"""What the verbs that take a recipe share: its name comes first, then every setting of it as an option."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ..data import Corpus, DataSettings, is_prepared, load_tokenizer
from ..data.tokenizer import ByteTokenizer, Gpt2Tokenizer
from ..training.recipe import DeviceSettings, ModelSettings, OptimizerSettings, Recipe, TrainingSettings
from ..training.recipe_files import RecipeFile, load_recipe
from .options import argument, parse

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TextOptions(DataSettings):
    """What the model reads."""

    paths: Annotated[tuple[str, ...], tyro.conf.arg(name="data")] = ()
    """Text: files, folders, globs, - for standard input, or one prepared folder.
    Plain text, .jsonl and .parquet, also compressed. None: the documentation that every Python brings."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ModelSettings):
    """The network. What the paper does not state is marked as our reading."""

    from_run: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Begin with the weights of this RUN, not with random ones; its sizes, schedule and tokenizer come with it."""


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """A recipe as options."""

    model: ModelOptions = field(default_factory=ModelOptions)
    data: TextOptions = field(default_factory=TextOptions)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)


def recipe_options(recipe: Recipe) -> dict[str, Any]:
    """The defaults of `RecipeOptions` that stand for `recipe`."""
    values = {each.name: getattr(recipe, each.name) for each in fields(Recipe)}
    values["model"] = ModelOptions(**{each.name: getattr(recipe.model, each.name) for each in fields(ModelSettings)})
    values["data"] = TextOptions(**{each.name: getattr(recipe.data, each.name) for each in fields(DataSettings)})
    return values


def chosen_recipe(options: RecipeOptions) -> Recipe:
    """The recipe with what the command line changed."""
    values = {each.name: getattr(options, each.name) for each in fields(Recipe)}
    values["model"] = ModelSettings(**{each.name: getattr(options.model, each.name) for each in fields(ModelSettings)})
    if run := options.model.from_run:  # workers and a later resume may stand in another folder
        values["model"] = replace(values["model"], from_run=str(Path(run).expanduser().resolve()))
    values["data"] = DataSettings(**{each.name: getattr(options.data, each.name) for each in fields(DataSettings)})
    if len(options.data.paths) == 1 and is_prepared(folder := Path(options.data.paths[0]).expanduser()):
        values["data"] = replace(values["data"], paths=(str(folder.resolve()),))  # where its tokenizer is found later
    return Recipe(**values)


def vocab_size(recipe: Recipe) -> int:
    """Ids of the recipe's tokenizer, without preparing any text, or fetching the files of a known one."""
    paths, tokenizer = recipe.data.paths, recipe.data.named_tokenizer
    if len(paths) == 1 and is_prepared(folder := Path(paths[0]).expanduser()):
        return Corpus.open(folder, tokenizer=tokenizer).vocab_size
    if tokenizer is None:
        return recipe.data.vocab_size
    known = {each.name: each.vocab_size for each in (Gpt2Tokenizer, ByteTokenizer)}
    return known.get(tokenizer) or load_tokenizer(tokenizer).vocab_size


def recipe_argument(argv: list[str]) -> str | None:
    """The value of --recipe, wherever it stands."""
    return argument(argv, "--recipe", "the name of a recipe or a YAML file")


def parse_over_recipe(
    kind: type[T], argv: list[str], defaults: Callable[[RecipeFile], T], *, prog: str, recipe: str
) -> tuple[T, RecipeFile]:
    """Parse `argv` into `kind`, whose defaults are those of the recipe that `argv` names, or of `recipe`."""
    file = load_recipe(recipe_argument(argv) or recipe)
    if run := argument(argv, "--from", "a RUN, whose weights are begun with"):
        from ..training.beginning import begin_from  # imports torch

        file = replace(file, recipe=begin_from(file.recipe, run))
    return parse(kind, argv, prog=prog, default=defaults(file)), file
