import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from prism_transformer.data.huggingface import HuggingFaceTokenizer
from prism_transformer.data.tokenizer import load_tokenizer
from prism_transformer.errors import InputError

TEXTS = ["the cat sat on the mat", "the dog sat on the log, the cat on the dog", "naïve 漢字"] * 20
TRAINED = HuggingFaceTokenizer.train(TEXTS, vocab_size=280)


def word_level(folder: Path, words: dict[str, int], **files: Any) -> Path:
    """A Hugging Face folder of whole words, with the configuration files given."""
    folder.mkdir(exist_ok=True)
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


WORDS = {"<unk>": 0, "</s>": 1, "the": 2, "cat": 3}


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_trained_bpe_gives_every_text_back(text: str) -> None:
    assert TRAINED.decode(TRAINED.encode(text)) == text


def test_trained_bpe_has_the_size_asked_for() -> None:
    assert TRAINED.vocab_size == 280
    assert max(TRAINED.encode("the cat sat")) < 280
    assert len(TRAINED.encode("the cat sat on the mat")) < len("the cat sat on the mat") / 2


def test_too_little_text_gives_fewer_ids() -> None:
    """256 bytes, end-of-text, and the two merges that " ab" allows: a+b, space+ab."""
    assert HuggingFaceTokenizer.train(["ab ab"], vocab_size=1000).vocab_size == 256 + 1 + 2


def test_literal_end_of_text_is_ordinary_text() -> None:
    ids = TRAINED.encode("a <|endoftext|> b")
    assert TRAINED.end_of_text not in ids
    assert TRAINED.decode(ids) == "a <|endoftext|> b"
    assert TRAINED.decode([TRAINED.end_of_text]) == "<|endoftext|>"


def test_training_is_deterministic_in_any_process() -> None:
    code = (
        "from prism_transformer.data.huggingface import HuggingFaceTokenizer as H;"
        f"print(H.train({TEXTS!r}, vocab_size=280).fingerprint)"
    )
    for threads in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
        )
        assert result.stdout.strip() == TRAINED.fingerprint


def test_saved_tokenizer_is_the_same_one(tmp_path: Path) -> None:
    TRAINED.save(tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer", name="bpe")
    assert (again.fingerprint, again.name, again.end_of_text) == (TRAINED.fingerprint, "bpe", TRAINED.end_of_text)


def test_saved_tokenizer_is_read_by_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    TRAINED.save(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    text = "the cat, naïve 漢字"
    assert peer.encode(text, add_special_tokens=False) == TRAINED.encode(text)
    assert peer.eos_token_id == TRAINED.end_of_text


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"eos_token": "</s>"}},
        {"tokenizer_config": {"eos_token": {"content": "</s>", "lstrip": False}}},
        {"special_tokens_map": {"eos_token": "</s>"}},
        {"generation_config": {"eos_token_id": [1, 0]}},
        {"config": {"eos_token_id": 1}},
        {"tokenizer_config": {"eos_token": None}, "config": {"eos_token_id": 1}},
    ],
)
def test_end_of_text_is_what_the_folder_states(tmp_path: Path, files: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(word_level(tmp_path / "words", WORDS, **files))
    assert (tokenizer.end_of_text, tokenizer.name, tokenizer.vocab_size) == (1, "words", 4)


@pytest.mark.parametrize(
    "files", [{}, {"tokenizer_config": {"eos_token": "<nowhere>"}}, {"config": {"eos_token_id": 9}}]
)
def test_no_end_of_text_is_refused_with_the_remedy(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r'no end-of-text token.*write \{"eos_token": "TOKEN"\} into .*config\.json'):
        load_tokenizer(word_level(tmp_path / "words", WORDS, **files))


def test_unknown_words_have_an_id(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(word_level(tmp_path / "words", WORDS, tokenizer_config={"eos_token": "</s>"}))
    assert tokenizer.encode("the dog the cat") == [2, 0, 2, 3]
    assert tokenizer.unknown == 0


def test_a_gap_in_the_ids_counts_as_vocabulary(tmp_path: Path) -> None:
    words = {"<unk>": 0, "</s>": 1, "far": 1000}
    tokenizer = load_tokenizer(word_level(tmp_path / "words", words, tokenizer_config={"eos_token": "</s>"}))
    assert tokenizer.vocab_size == 1001


def test_nothing_is_added_cut_or_padded(tmp_path: Path) -> None:
    """A template, truncation and padding, as in many published tokenizer.json files, would spoil a document."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A </s>", special_tokens=[("</s>", 1)])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    assert load_tokenizer(tmp_path).encode("the cat the cat") == [2, 3, 2, 3]


def test_end_of_text_not_marked_special_is_still_ordinary_in_a_text(tmp_path: Path) -> None:
    state = json.loads(TRAINED._json)
    for token in state["added_tokens"]:
        token["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.end_of_text not in tokenizer.encode("a <|endoftext|> b")


def test_file_that_leaves_the_list_of_added_tokens_out_has_none(tmp_path: Path) -> None:
    """As the library reads such a file."""
    folder = word_level(tmp_path / "words", WORDS, tokenizer_config={"eos_token": "</s>"})
    state = json.loads((folder / "tokenizer.json").read_text())
    del state["added_tokens"]
    (folder / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.encode("the cat"), tokenizer.end_of_text, tokenizer.vocab_size) == ([2, 3], 1, 4)


def test_file_is_taken_for_its_folder(tmp_path: Path) -> None:
    folder = word_level(tmp_path / "words", WORDS, tokenizer_config={"eos_token": "</s>"})
    assert load_tokenizer(folder / "tokenizer.json").fingerprint == load_tokenizer(folder).fingerprint


def test_folder_without_tokenizer_json_is_read_by_transformers(tmp_path: Path) -> None:
    """GPT-2's older layout: vocab.json and merges.txt, and a configuration that names the class."""
    pytest.importorskip("transformers")
    state = json.loads(TRAINED._json)
    (tmp_path / "vocab.json").write_text(json.dumps(state["model"]["vocab"]))
    merges = [" ".join(merge) for merge in state["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    text = "the cat, naïve 漢字 <|endoftext|>"
    assert tokenizer.encode(text) == TRAINED.encode(text)


@pytest.mark.parametrize("content", ["{", '{"no": "model"}', "[]"])
def test_damaged_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_unknown_id_of_a_unigram_model(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(models.Unigram([("</s>", 0.0), ("<unk>", 0.0), ("a", -1.0)], unk_id=1))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    assert load_tokenizer(tmp_path).unknown == 1
