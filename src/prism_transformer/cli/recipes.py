"""What the verbs that take a recipe share: its name comes first, then every setting of it as an option."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ..data import Corpus, DataSettings, is_prepared, load_tokenizer
from ..data.tokenizer import ByteTokenizer, Gpt2Tokenizer
from ..errors import InputError
from ..training.recipe import (
    DeviceSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    RecipeFile,
    TrainingSettings,
    load_recipe,
)

T = TypeVar("T")

CONFIG: tuple[Any, ...] = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


@dataclass(frozen=True, kw_only=True)
class TextOptions(DataSettings):
    """What the model reads."""

    paths: Annotated[tuple[str, ...], tyro.conf.arg(name="data")] = ()
    """Text: files, folders, globs, - for standard input, or one prepared folder; plain text, .jsonl, .parquet, also
    compressed. None: the documentation that every Python brings."""


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
    return Recipe(**values)


def vocab_size(recipe: Recipe) -> int:
    """Ids of the recipe's tokenizer, without preparing any text, or fetching the files of a known one."""
    paths, tokenizer = recipe.data.paths, recipe.data.tokenizer
    if len(paths) == 1 and is_prepared(folder := Path(paths[0]).expanduser()):
        return Corpus.open(folder, tokenizer=None if tokenizer == "bpe" else tokenizer).vocab_size
    if tokenizer == "bpe":
        return recipe.data.vocab_size
    known = {each.name: each.vocab_size for each in (Gpt2Tokenizer, ByteTokenizer)}
    return known.get(tokenizer) or load_tokenizer(tokenizer).vocab_size


def recipe_argument(argv: list[str]) -> str | None:
    """The value of --recipe, wherever it stands."""
    return _argument(argv, "--recipe", "the name of a recipe or a YAML file")


def _argument(argv: list[str], option: str, what: str) -> str | None:
    given = []
    for word, following in pairwise([*argv, "--"]):
        if word.startswith(f"{option}="):
            given.append(word.removeprefix(f"{option}="))
        elif word == option:
            given.append(following)
    if any(not value or value.startswith("--") for value in given):
        raise InputError(f"{option} needs {what}")
    if len(given) > 1:
        raise InputError(f"{option} is given {len(given)} times ({', '.join(given)}); give one")
    return given[0] if given else None


def parse_over_recipe(
    kind: type[T], argv: list[str], defaults: Callable[[RecipeFile], T], *, prog: str, recipe: str
) -> tuple[T, RecipeFile]:
    """Parse `argv` into `kind`, whose defaults are those of the recipe that `argv` names, or of `recipe`."""
    refuse_misread(argv)
    file = load_recipe(recipe_argument(argv) or recipe)
    if run := _argument(argv, "--from", "a RUN, whose weights are begun with"):
        from ..training.beginning import begin_from  # imports torch

        file = replace(file, recipe=begin_from(file.recipe, run))
    default = defaults(file)
    needed = [word for word in argv if word not in _said_already(default)]
    return tyro.cli(kind, args=needed, default=default, prog=prog, config=CONFIG), file


def _said_already(default: Any) -> set[str]:
    """The flags that change nothing, whose opposites alone tyro knows: --calibrate, where the recipe calibrates."""
    said: set[str] = set()
    for each in fields(default):
        value = getattr(default, each.name)
        if is_dataclass(value):
            said |= _said_already(value)
        elif isinstance(value, bool):
            said.add(f"--{'' if value else 'no-'}{each.name.replace('_', '-')}")
    return said


def refuse_misread(argv: list[str]) -> None:
    """Raise InputError for what would be taken for something else: a flag with a value, --data without one."""
    problems = []
    for word, following in pairwise([*argv, "--"]):
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option.startswith("--") and value.lower() in ("true", "false"):
            problems.append(f"{option} {value}: a flag takes no value; give it alone, or leave it out")
        if option == "--data" and (not value or value.startswith("--")):
            problems.append("--data needs a path; to read the documentation of Python, leave it out")
    if problems:
        raise InputError(problems)
