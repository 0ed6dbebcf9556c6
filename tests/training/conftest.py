"""A corpus of a few hundred tokens and a recipe of 24 steps, which read it two and a half times."""

import random
from pathlib import Path

import pytest

from prism_transformer.data import Corpus, DataSettings, prepare
from prism_transformer.training.recipe import Recipe, with_training

from .runs import RECIPE, whole_run

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"]


def write_text(path: Path, *, words: int, seed: int) -> Path:
    draw = random.Random(seed)
    path.write_text(" ".join(draw.choice(WORDS) for _ in range(words)), encoding="utf-8")
    return path


def make_corpus(folder: Path, *, words: int = 138, seed: int = 0) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    text = write_text(folder / "text.txt", words=words, seed=seed)
    settings = DataSettings(paths=(str(text),), tokenizer="bytes", validation_share=0.1, test_share=0.1)
    return prepare(settings, folder / "data", say=lambda line: None)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """4 sequences of 16 tokens a step, in 2 micro-batches."""
    return RECIPE


@pytest.fixture(scope="session")
def logged(recipe) -> Recipe:
    """One line of metrics for each step, so that a callback can act at any of them."""
    return with_training(recipe, log_every=1)


@pytest.fixture(scope="session")
def unbroken(recipe, corpus, tmp_path_factory) -> Path:
    return whole_run(recipe, corpus, tmp_path_factory.mktemp("unbroken"))


@pytest.fixture(scope="session")
def unbroken_logged(logged, corpus, tmp_path_factory) -> Path:
    return whole_run(logged, corpus, tmp_path_factory.mktemp("unbroken_logged"))


@pytest.fixture(scope="session")
def short(recipe) -> Recipe:
    """8 steps, each of them logged and saved, with an evaluation after 4."""
    return with_training(recipe, tokens=8 * 64, log_every=1, evaluations=2, save_minutes=1e-9)


@pytest.fixture(scope="session")
def unbroken_short(short, corpus, tmp_path_factory) -> Path:
    return whole_run(short, corpus, tmp_path_factory.mktemp("unbroken_short"))
