"""From a budget of time to seeds and tokens, and to the largest recipe that fits."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..data import SPLITS, Corpus, DataSettings, Split, is_prepared
from ..data.compressed import OPENERS
from ..data.sources import find_files
from ..errors import InputError
from ..training.recipe import Recipe, with_training
from ..training.text import MOST_EPOCHS
from ..wording import count
from .estimate import Estimate, duration
from .plan import StudySettings

MOST_SEEDS = 10
LEAST_SEEDS = 3
LEAST_SHARE = 0.25
"""of a recipe's tokens: shorter runs sit on the plateau of the loss curve and show nothing"""

Estimator = Callable[[Recipe, StudySettings], Estimate]


class Candidate(NamedTuple):
    """A recipe that may fit."""

    label: Any
    """whatever the caller knows it by"""
    recipe: Recipe
    settings: StudySettings
    vocab_size: int


def fit_budget(
    recipe: Recipe, settings: StudySettings, budget: float, estimator: Estimator, *, fixed: Sequence[str] = ()
) -> tuple[Recipe, StudySettings]:
    """The recipe and settings whose plan takes `budget` seconds at the most.

    The recipe's tokens come first, since a run that stops on the plateau of its loss curve shows nothing: seeds are
    added up to 10 while they fit. Where 3 seeds do not fit, the tokens shrink, to a quarter at the least. `fixed` names
    what the user has chosen ("seeds", "tokens") and is not changed.

    Raises InputError where the budget is below one run, saying what one costs.
    """
    seeds = settings.seeds if "seeds" in fixed else LEAST_SEEDS
    least = replace(settings, seeds=seeds)
    needed = _seconds(estimator(recipe, least))
    if needed <= budget:
        counts = [seeds] if "seeds" in fixed else range(LEAST_SEEDS, MOST_SEEDS + 1)
        fitting = [n for n in counts if _seconds(estimator(recipe, replace(settings, seeds=n))) <= budget]
        return recipe, replace(settings, seeds=max(fitting))
    shrunk = None if "tokens" in fixed else _shrink(recipe, least, budget, estimator)
    if shrunk is None:
        one_run = _seconds(estimator(recipe, replace(settings, seeds=1)).of_runs(1))
        raise InputError(
            f"budget={settings.budget} is too small: one run of this recipe takes about {duration(one_run)}, and the "
            f"study with {count(seeds, 'seed')} about {duration(needed)}; give more time, or shorter runs (--tokens)"
        )
    return shrunk, least


def _shrink(recipe: Recipe, settings: StudySettings, budget: float, estimator: Estimator) -> Recipe | None:
    """The recipe with as many whole steps as fit; None where that is less than LEAST_SHARE of them."""
    low, high = math.ceil(LEAST_SHARE * recipe.steps), recipe.steps
    shortest = with_training(recipe, tokens=low * recipe.training.tokens_per_step)
    if _seconds(estimator(shortest, settings)) > budget:
        return None
    while low < high:
        middle = math.ceil((low + high) / 2)
        shorter = with_training(recipe, tokens=middle * recipe.training.tokens_per_step)
        if _seconds(estimator(shorter, settings)) <= budget:
            low = middle
        else:
            high = middle - 1
    return with_training(recipe, tokens=low * recipe.training.tokens_per_step)


def largest_that_fits(
    candidates: Iterable[Candidate], budget: float, estimator: Callable[[Candidate], Estimator], *, peak: float
) -> Candidate | None:
    """The first of `candidates` (largest first) whose 3 seeds fit `budget` seconds with at most 4 epochs of the text.

    `peak` is the FLOP/s of a large matrix product: what would take too long even at that rate is not measured.
    """
    for candidate in candidates:
        _, recipe, settings, vocab_size = candidate
        tokens = text_tokens(recipe.data, vocab_size)
        if tokens and recipe.trained_tokens > MOST_EPOCHS * tokens["train"]:
            continue
        flops = 3 * recipe.model.cost(vocab_size).matmul_flops_per_token * recipe.trained_tokens
        if flops * LEAST_SEEDS * 2 / peak > budget:  # two arms at least
            continue
        if _seconds(estimator(candidate)(recipe, replace(settings, seeds=LEAST_SEEDS))) <= budget:
            return candidate
    return None


EMBEDDED_BYTES = 2_800_000
"""of Python's documentation, about, in Python 3.11"""

COMPRESSION = 3.5
"""bytes of English text to one of its .gz, .xz or .zst, about"""


def text_tokens(settings: DataSettings, vocab_size: int) -> dict[Split, int]:
    """The tokens of each split, roughly, from the sizes of the files; exactly where they are prepared.

    Empty for standard input, which cannot be looked at beforehand. Raises InputError for paths that are not there.
    """
    if "-" in settings.paths:
        return {}
    if len(settings.paths) == 1 and is_prepared(folder := Path(settings.paths[0]).expanduser()):
        return split_sizes(Corpus.open(folder, tokenizer=settings.named_tokenizer))
    size = float(EMBEDDED_BYTES)
    if settings.paths:
        with TemporaryDirectory() as spool:
            files = find_files(settings.paths, text_field=settings.text_field, spool=Path(spool)).paths
        size = sum(path.stat().st_size * (COMPRESSION if path.suffix.lower() in OPENERS else 1) for path in files)
    validation, test = settings.shares(size)
    shares: dict[Split, float] = {"train": 1 - validation - test, "validation": validation, "test": test}
    return {split: int(size * share / bytes_per_token(vocab_size)) for split, share in shares.items()}


def split_sizes(corpus: Corpus) -> dict[Split, int]:
    """The tokens of each split that a corpus has."""
    return {split: len(corpus.split(split)) for split in SPLITS if corpus.shards.get(split)}


def bytes_per_token(vocab_size: int) -> float:
    """Bytes of English a token, about: 1 of a tokenizer of bytes, 2.4 at 1,024 ids, 4.4 of GPT-2's 50,257."""
    return 1.0 if vocab_size < 300 else 2.4 + 2.0 * math.log(vocab_size / 1024) / math.log(50257 / 1024)


def _seconds(found: Estimate) -> float:
    assert found.seconds is not None, "a budget needs a measured speed"
    return found.seconds
