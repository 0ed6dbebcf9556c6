"""Text to a corpus: survey the sources, split them, train the tokenizer if asked, encode in one pass, write shards."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prism_transformer.data.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What a model reads: text, its tokenizer, and how much of the text is held out."""

    paths: tuple[str, ...] = ()
    """Text to read: files, folders, globs, or - for standard input; .txt, .md and other plain text, .jsonl, .parquet,
    also compressed (.gz, .xz, .zst); or one folder that is already prepared. None: the Python documentation that every
    Python brings."""
    tokenizer: str = "bpe"
    """bpe (trained on the training split), gpt2, bytes, or the folder of a Hugging Face tokenizer."""
    vocab_size: int = 4096
    """Rows of the vocabulary, for a tokenizer trained here."""
    text_field: str = "text"
    """The field of .jsonl lines, and the column of .parquet files, that holds the text."""
    validation_share: float = 0.05
    """Part of the text, by bytes, held out for validation: what decisions are made on."""
    test_share: float = 0.05
    """Part of the text, by bytes, held out and never read by a search."""


def prepare(settings: DataSettings, folder: Path, *, say: Callable[[str], None] = print) -> Corpus:
    """Prepare the text of `settings` in `folder`, or open what is complete there with the same settings and sources."""
    raise NotImplementedError
