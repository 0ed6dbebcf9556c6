"""Tokenizers of the `tokenizers` library: a BPE trained here, or one out of a Hugging Face folder."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from ..errors import InputError
from ..files import read_json
from .tokenizer import END_OF_TEXT, Tokenizer, UnsignedIds


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer.json, encoding ordinary text only: no special ids, no template, no truncation."""

    def __init__(self, state: dict[str, Any], *, end_of_text: str, name: str) -> None:
        """`state` is the content of tokenizer.json; `end_of_text` is a token of it."""
        for token in state.get("added_tokens", ()):
            # `encode_special_tokens` makes ordinary text of special tokens only.
            token["special"] = token["special"] or token["content"] == end_of_text
        self._json = json.dumps(state, ensure_ascii=False, sort_keys=True)
        self._tokenizer = tokenizers.Tokenizer.from_str(self._json)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._end_of_text = end_of_text
        self.name = name
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.end_of_text = vocabulary[end_of_text]
        self.vocab_size = 1 + max(vocabulary.values())
        self.unknown = _unknown_id(self._tokenizer, state["model"])
        self.fingerprint = hashlib.sha256(f"{self._json}\0{end_of_text}".encode()).hexdigest()

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int) -> "HuggingFaceTokenizer":
        """A byte-level BPE with GPT-2's pre-tokenization; a pure function of the texts and the size.

        Too little text for `vocab_size` ids gives fewer of them.
        """
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(json.loads(tokenizer.to_str()), end_of_text=END_OF_TEXT, name="bpe")

    @classmethod
    def load(cls, path: Path, *, name: str) -> "HuggingFaceTokenizer":
        """From a folder, or its tokenizer.json. Raises InputError where it is unreadable or states no end-of-text."""
        folder = path if path.is_dir() else path.parent
        file = folder / "tokenizer.json" if path.is_dir() else path
        state = read_json(file) if file.is_file() else _converted_by_transformers(folder)
        try:
            tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
        except Exception as error:  # the library raises a plain Exception for a file that it cannot use
            raise InputError(f"{file}: no Hugging Face tokenizer ({error})") from None
        return cls(state, end_of_text=_end_of_text(folder, tokenizer), name=name)

    def encode_batch(self, texts: Sequence[str]) -> list[UnsignedIds]:
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(e.ids, dtype=np.uint32) for e in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # With this class transformers' AutoTokenizer reads the folder too.
        config = {"eos_token": self._end_of_text, "tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n", encoding="utf-8")
        (folder / "tokenizer.json").write_text(self._json, encoding="utf-8")


def _configuration(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _converted_by_transformers(folder: Path) -> dict[str, Any]:
    """What tokenizer.json would hold, of an older folder (vocab.json, merges.txt, …) that only transformers reads."""
    from transformers import AutoTokenizer

    try:
        backend = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
        state: dict[str, Any] = json.loads(backend.to_str())
    except Exception as error:  # transformers raises anything here, from KeyError to ImportError
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{folder}: no tokenizer.json in it, and transformers cannot make one of what is there ({reason})"
        ) from None
    return state


def _end_of_text(folder: Path, tokenizer: "tokenizers.Tokenizer") -> str:
    """The end-of-text token that the folder's configuration states, in the order in which transformers looks."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        stated = _configuration(folder / file).get("eos_token")
        token = stated.get("content") if isinstance(stated, dict) else stated
        if isinstance(token, str) and tokenizer.token_to_id(token) is not None:
            return token
    for file in ("generation_config.json", "config.json"):
        stated = _configuration(folder / file).get("eos_token_id")
        number = stated[0] if isinstance(stated, list) and stated else stated
        if isinstance(number, int) and tokenizer.id_to_token(number) is not None:
            return str(tokenizer.id_to_token(number))
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    known = f"; its special tokens: {', '.join(special[:8])}" if special else ""
    raise InputError(
        f"{folder}: the tokenizer states no end-of-text token of its vocabulary; "
        f'write {{"eos_token": "TOKEN"}} into {folder / "tokenizer_config.json"}{known}'
    )


def _unknown_id(tokenizer: "tokenizers.Tokenizer", model: dict[str, Any]) -> int | None:
    """Unigram models name the id of the unknown, the others its token."""
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    token = model.get("unk_token")
    return tokenizer.token_to_id(token) if isinstance(token, str) else None
