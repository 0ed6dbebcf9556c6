"""Weights of another RUN to begin with, and the settings that come with them."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..data import Corpus
from ..data.corpus import TOKENIZER
from ..errors import InputError
from ..evaluation.loading import LoadedModel, load
from ..files import RECIPE
from ..model.modeling_prism import PrismForCausalLM
from .recipe import ModelSettings, Recipe
from .recipe_files import load_recipe

SIZES = ("layers", "d_model", "ffn", "tied")
"""What the shapes of the weights fix."""


def begin_from(recipe: Recipe, run: Path | str) -> Recipe:
    """`recipe` for the model of `run`: with its sizes, head schedule and tokenizer, and at most its context.

    Raises InputError where `run` is no model of this package.
    """
    settings, tokenizer = _settings_of(str(Path(run).expanduser().resolve()))
    context = min(recipe.model.context, settings.context)
    return replace(
        recipe,
        model=replace(settings, context=context),
        data=replace(recipe.data, tokenizer=tokenizer),
    )


def weights_of_another_run(recipe: Recipe, corpus: Corpus) -> PrismForCausalLM:
    """The model of `recipe.model.from_run` under the recipe's schedule.

    Rows of the vocabulary beyond the tokenizer's ids are padding from here on. Raises InputError where sizes or
    tokenizer are not those of the weights.
    """
    path = str(recipe.model.from_run)
    source = _load(path)
    wanted, found = recipe.model, _model_settings(source, path)
    problems = [
        f"{name}={getattr(wanted, name)}, but the weights of {path} have {getattr(found, name)}; leave it out"
        for name in SIZES
        if getattr(wanted, name) != getattr(found, name)
    ]
    if corpus.tokenizer.fingerprint != source.tokenizer.fingerprint:
        problems.append(
            f"the text is in tokens of {corpus.tokenizer_name}, but {path} was trained with another tokenizer, "
            f"{source.tokenizer.name}; prepare the text with that one"
        )
    if problems:
        raise InputError(problems)
    config = wanted.config(corpus.vocab_size, corpus.tokenizer.end_of_text)
    own: Any = source.model.config
    config.vocab_size, config.rms_norm_eps = own.vocab_size, own.rms_norm_eps
    config.true_vocab_size = corpus.vocab_size if corpus.vocab_size < own.vocab_size else None
    model = PrismForCausalLM(config)
    model.load_state_dict(source.model.state_dict())
    return model


def _load(path: str) -> LoadedModel:
    source = load(path)
    if not isinstance(source.model, PrismForCausalLM):
        raise InputError(
            f"{path} is no model of this package, but {source.model.config.model_type}; "
            f"make one of it: prism import {path} --out FOLDER"
        )
    return source


@lru_cache(maxsize=1)
def _settings_of(path: str) -> tuple[ModelSettings, str]:
    """The settings of the model in `path`, and where its tokenizer is; read once for all recipes that are tried."""
    source = _load(path)
    return _model_settings(source, path), _tokenizer_of(source, path)


def _tokenizer_of(source: LoadedModel, path: str) -> str:
    """What `load_tokenizer` takes. Other programs' shards bring no tokenizer, and the run's recipe names it."""
    if source.corpus is None or source.run is None:
        return path
    if source.corpus.manifest is None:
        return load_recipe(source.run / RECIPE).recipe.data.tokenizer
    return str(source.corpus.folder / TOKENIZER)


def _model_settings(source: LoadedModel, path: str) -> ModelSettings:
    config: Any = source.model.config
    schedule = config.head_schedule
    return ModelSettings(
        layers=schedule.n_layers,
        d_model=schedule.d_model,
        heads=schedule.base_heads,
        schedule="uniform" if schedule.is_uniform else str(schedule),
        context=source.context,
        ffn=config.intermediate_size,
        norm=config.norm_type,
        rope_theta=config.rope_parameters["rope_theta"],
        rope_width=config.rope_width,
        attention_scale=config.attention_scale,
        init_std=config.initializer_range,
        tied=config.tie_word_embeddings,
        from_run=path,
    )
