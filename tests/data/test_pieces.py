from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.data.huggingface import HuggingFaceTokenizer
from prism_transformer.data.pieces import find_cut, pieces, take_parts
from prism_transformer.data.tokenizer import Gpt2Tokenizer

prose = st.text(alphabet="ab9 .,'\n\té漢", max_size=200)
GPT2 = Gpt2Tokenizer()
BPE = HuggingFaceTokenizer.train(["ab aab 99 .,' é漢"] * 5, vocab_size=290)


@given(st.lists(st.text(max_size=50)), st.integers(1, 20))
def test_pieces_are_the_text(blocks: list[str], size: int) -> None:
    got = list(pieces(blocks, size))
    assert "".join(got) == "".join(blocks)
    assert all(0 < len(piece) <= size for piece in got)


@given(prose, st.integers(1, 30), st.data())
def test_pieces_do_not_depend_on_the_blocks(text: str, size: int, data: st.DataObject) -> None:
    at = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    blocks = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    assert list(pieces(blocks, size)) == list(pieces([text], size))


@given(prose, st.integers(1, 30))
def test_a_cut_before_a_space_changes_no_token(text: str, limit: int) -> None:
    """Where the text offers no such place the cut is at the limit, and only there tokens may differ."""
    if len(text) <= limit:
        return
    cut = find_cut(text, 0, limit)
    assert 0 < cut <= limit
    if text[cut].isspace() and not text[cut - 1].isspace():
        for tokenizer in (GPT2, BPE):
            assert tokenizer.encode(text[:cut]) + tokenizer.encode(text[cut:]) == tokenizer.encode(text)


def test_the_last_good_place_is_taken() -> None:
    assert find_cut("one two three", 0, 10) == len("one two")
    assert find_cut("one two three", 0, 7) == len("one two")
    assert find_cut("one two  three", 0, 8) == len("one two")  # not inside the white space
    assert find_cut("one. two", 0, 7) == len("one.")  # white space, though no letter before it
    assert find_cut("漢字漢字漢字", 0, 4) == 4


def test_long_white_space_is_cut_quickly() -> None:
    assert "".join(pieces([" " * 10**6], 2**16)) == " " * 10**6


@given(st.text(max_size=100), st.lists(st.integers(0, 300), min_size=2, max_size=2).map(sorted), st.integers(1, 40))
def test_parts_are_the_text_in_order(text: str, ends: list[int], size: int) -> None:
    parts = list(take_parts(pieces([text], size), ends))
    assert "".join(part for _, part in parts) == text
    numbers = [number for number, _ in parts]
    assert numbers == sorted(numbers)
    for part, end in enumerate(ends):
        before = "".join(text for number, text in parts if number <= part)
        assert len(before.encode()) <= end or end >= len(text.encode())


def test_whole_documents_are_one_part() -> None:
    text, size = "some words", len("some words")
    assert list(take_parts([text], [size, size])) == [(0, text)]
    assert list(take_parts([text], [0, size])) == [(1, text)]
    assert list(take_parts([text], [0, 0])) == [(2, text)]


def test_parts_end_at_words() -> None:
    assert list(take_parts(["one two three four"], [9, 15])) == [(0, "one two"), (1, " three"), (2, " four")]


def test_a_character_is_never_cut() -> None:
    """Bytes 4 and 8 of three 3-byte characters lie inside the second and the third."""
    assert list(take_parts(["漢字語"], [4, 8])) == [(0, "漢"), (1, "字"), (2, "語")]
