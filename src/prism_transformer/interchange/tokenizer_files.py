"""The files of a tokenizer beside the weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from ..data import Tokenizer, load_tokenizer
from ..data.tokenizer import END_OF_TEXT, ByteTokenizer, Gpt2Tokenizer
from ..errors import InputError

HUGGING_FACE_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
PROBE = 'The  cat\'s 3 naïve "tokens":\n\tdef f(x): return x**2  # ≈ 日本 🙂 '
"""What two tokenizers that are one must encode to the same ids; no special token is in it, on which tools differ."""


def copy_tokenizer(source: Path, target: Path, *, rows: int) -> Tokenizer | None:
    """Copy the tokenizer of a Hugging Face folder as it is; None where it has none.

    Raises InputError for one that has more ids than the model has rows: it is another model's.
    """
    names = [name for name in HUGGING_FACE_FILES if (source / name).is_file()]
    if not {"tokenizer.json", "tokenizer.model", "vocab.json"}.intersection(names):
        return None
    tokenizer = load_tokenizer(source)
    if tokenizer.vocab_size > rows:
        raise InputError(
            f"{source}: the model has {rows:,} ids, but its tokenizer has {tokenizer.vocab_size:,}: they do not belong "
            "together; restore the files of one of them"
        )
    for name in names:
        shutil.copyfile(source / name, target / name)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write `tokenizer` so that this package and transformers' AutoTokenizer read it to the same ids.

    For AutoTokenizer it puts end-of-text before each text, as in training; `Tokenizer.encode` adds nothing.
    """
    tokenizer.save(folder)
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else _state_of(tokenizer, folder)
    end = tokenizer.decode([tokenizer.end_of_text])
    state["post_processor"] = _end_of_text_before(end, tokenizer.end_of_text)
    path.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _end_of_text_before(token: str, number: int) -> dict[str, Any]:
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def _state_of(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """The tokenizer.json of the tokenizers that have a format of their own."""
    if isinstance(tokenizer, ByteTokenizer):
        # The alphabet of byte-level BPE in the order of the bytes; no merges, and no cut between words.
        return _byte_level_bpe({mark: byte for byte, mark in _byte_marks().items()}, [], 256, use_regex=False)
    if isinstance(tokenizer, Gpt2Tokenizer):
        vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
        lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
        merges = [(first, second) for first, second in (line.split(" ") for line in lines if line)]
        vocabulary.pop(END_OF_TEXT, None)
        return _byte_level_bpe(vocabulary, merges, tokenizer.end_of_text, use_regex=True)
    raise AssertionError(f"{type(tokenizer).__name__} has no tokenizer.json")


def _byte_level_bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], end_of_text: int, *, use_regex: bool
) -> dict[str, Any]:
    built = tokenizers.Tokenizer(models.BPE(vocabulary | {END_OF_TEXT: end_of_text}, merges))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([END_OF_TEXT])
    state: dict[str, Any] = json.loads(built.to_str())
    return state


def _byte_marks() -> dict[int, str]:
    """The character that stands for each byte in byte-level BPE: printable ones themselves, others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    marks = {byte: chr(byte) for byte in printable}
    return marks | {byte: chr(256 + place) for place, byte in enumerate(others)}
