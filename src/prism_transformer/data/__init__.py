"""Text to tokens to batches. Imports no torch: ids are numpy arrays."""

from .batches import (
    EvaluationWindows,
    Packing,
    n_windows,
    packing,
    train_windows,
)
from .corpus import Corpus, TokenStream, is_prepared
from .manifest import SPLITS, Manifest, Split
from .preparation import DataSettings, prepare
from .tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "SPLITS",
    "Corpus",
    "DataSettings",
    "EvaluationWindows",
    "Manifest",
    "Packing",
    "Split",
    "TokenStream",
    "Tokenizer",
    "is_prepared",
    "load_tokenizer",
    "n_windows",
    "packing",
    "prepare",
    "train_windows",
]
