"""Any text as a stream of tokens: encoded and packed as in training, in memory."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..data import Tokenizer, TokenStream
from ..data.pieces import pieces
from ..data.reading import Tally
from ..data.sources import find_files
from ..errors import InputError


def read_text(paths: Sequence[str], tokenizer: Tokenizer, *, text_field: str = "text") -> TokenStream:
    """The documents of files, folders, globs or - (standard input), each preceded by end-of-text, packed.

    Raises InputError for paths that hold no text.
    """
    parts, text_bytes, documents = [], 0, 0
    with TemporaryDirectory(prefix="prism-text-") as spool:
        sources = find_files(paths, text_field=text_field, spool=Path(spool))
        for document in sources.documents(Tally()):
            texts = list(pieces(document.blocks))
            if not texts or all(text.isspace() for text in texts):
                continue
            documents += 1
            text_bytes += sum(len(text.encode()) for text in texts)
            parts += [np.array([tokenizer.end_of_text], dtype=np.uint32), *tokenizer.encode_batch(texts)]
        origin = sources.origin
    if not documents:
        raise InputError(f"{origin}: no text in it, only empty or blank documents; give text")
    return TokenStream(
        where=origin,
        parts=[np.concatenate(parts)],
        names=[origin],
        tokenizer=tokenizer,
        stated_text_bytes=text_bytes,
    )
