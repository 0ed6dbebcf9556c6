"""How the text of a run fits its recipe. Imports no torch."""

from ..data import Corpus, Split, n_windows, packing
from ..errors import InputError
from .recipe import Recipe

MOST_EPOCHS = 4
"""up to which a repeated text is worth nearly as much as a new one (arXiv 2305.16264)"""


def check_data(recipe: Recipe, corpus: Corpus) -> None:
    """Raise InputError where a split is shorter than one window. Ids are checked as they are read."""
    problems: list[str] = []
    needed: dict[Split, int] = {"train": recipe.model.context, "validation": 1}
    for split, context in needed.items():
        try:
            n_windows(corpus.split(split), context)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def data_sentences(recipe: Recipe, corpus: Corpus) -> list[str]:
    """How the text is cut into windows, and how often it is read."""
    cut = packing(corpus.split("train"), context=recipe.model.context)
    epochs = recipe.trained_tokens / (cut.windows * recipe.model.context)
    sentences = [
        f"text: {cut.kept:,} tokens in {cut.windows:,} windows of {recipe.model.context}, {cut.dropped:,} dropped at "
        f"the end; {recipe.trained_tokens:,} tokens of training are {epochs:.2f} epochs"
    ]
    if cut.longest_document < recipe.model.context:
        sentences.append(f"every document is shorter than the context ({cut.longest_document} tokens at most): packed")
    if epochs > MOST_EPOCHS:
        sentences.append(
            f"warning: {epochs:.1f} epochs: beyond {MOST_EPOCHS} a repeated text teaches less than a new one"
        )
    return sentences
