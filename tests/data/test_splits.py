from random import Random

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.data.splits import key_of, new_key, split_edges, text_key

documents = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 10**6)), min_size=1, max_size=60)
shares = st.floats(0.01, 0.3)


def test_a_text_in_blocks_has_the_key_of_the_whole() -> None:
    """So a document is in one split whichever way it is read."""
    digest = new_key()
    for block in ("naïve ", "", "漢字"):
        digest.update(block.encode())
    assert key_of(digest) == text_key("naïve 漢字") != text_key("naive 漢字")


def sizes_of(edges: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    train, validation = edges[:, 0], edges[:, 1] - edges[:, 0]
    return int(train.sum()), int(validation.sum()), int((sizes - edges[:, 1]).sum())


def arrays(pairs: list[tuple[int, int]]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Documents of the same key are copies of one text, so they have one size."""
    size_of = dict(pairs)
    return np.array([key for key, _ in pairs], np.uint64), np.array([size_of[key] for key, _ in pairs], np.int64)


@given(documents, shares, shares)
def test_parts_are_in_order_and_lose_nothing(pairs: list[tuple[int, int]], validation: float, test: float) -> None:
    keys, sizes = arrays(pairs)
    edges = split_edges(keys, sizes, validation_share=validation, test_share=test)
    assert np.all((edges[:, 0] >= 0) & (edges[:, 0] <= edges[:, 1]) & (edges[:, 1] <= sizes))
    assert sum(sizes_of(edges, sizes)) == sizes.sum()


@given(documents, shares, shares)
def test_held_out_splits_have_about_their_share(pairs: list[tuple[int, int]], validation: float, test: float) -> None:
    """Half to one and a half times the share, and a byte of rounding for each document that is cut."""
    keys, sizes = arrays(pairs)
    edges = split_edges(keys, sizes, validation_share=validation, test_share=test)
    _, got_validation, got_test = sizes_of(edges, sizes)
    for got, share in ((got_validation, validation), (got_test, test)):
        assert 0.5 * share * sizes.sum() - len(sizes) <= got <= 1.5 * share * sizes.sum() + len(sizes)


@given(documents, st.data())
def test_copies_are_split_alike(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    copies = data.draw(st.lists(st.sampled_from(pairs), max_size=20))
    keys, sizes = arrays([*pairs, *copies])
    edges = split_edges(keys, sizes, validation_share=0.1, test_share=0.1)
    for key in set(keys.tolist()):
        assert len({tuple(edge) for edge in edges[keys == key].tolist()}) == 1


@given(documents, st.randoms())
def test_order_of_the_documents_does_not_matter(pairs: list[tuple[int, int]], random: Random) -> None:
    keys, sizes = arrays(pairs)
    order = list(range(len(keys)))
    random.shuffle(order)
    edges = split_edges(keys, sizes, validation_share=0.05, test_share=0.05)
    again = split_edges(keys[order], sizes[order], validation_share=0.05, test_share=0.05)
    assert again.tolist() == edges[order].tolist()


def test_single_document_gives_its_last_parts() -> None:
    edges = split_edges(np.array([9], np.uint64), np.array([1000]), validation_share=0.05, test_share=0.1)
    assert edges.tolist() == [[850, 900]]


def test_three_long_documents_leave_no_split_empty() -> None:
    keys, sizes = np.array([5, 1, 9], np.uint64), np.array([1000, 1000, 1000])
    edges = split_edges(keys, sizes, validation_share=0.05, test_share=0.05)
    assert edges.tolist() == [[1000, 1000], [1000, 1000], [700, 850]]


def test_long_documents_stay_whole_where_short_ones_can_be_held_out() -> None:
    """One document of half the text, with the last hash of all: still in the training split, and nothing is cut."""
    keys = np.array([2**64 - 1, *range(1000)], np.uint64)
    sizes = np.array([100_000, *[100] * 1000])
    edges = split_edges(keys, sizes, validation_share=0.05, test_share=0.05)
    assert edges[0].tolist() == [100_000, 100_000]
    assert sizes_of(edges, sizes) == (180_000, 10_000, 10_000)
    assert np.all((edges == 0) | (edges == sizes[:, None]))


def test_shares_of_zero_hold_nothing_out() -> None:
    keys, sizes = np.arange(100, dtype=np.uint64), np.full(100, 37)
    assert sizes_of(split_edges(keys, sizes, validation_share=0.1, test_share=0.0), sizes) == (3330, 370, 0)
    assert sizes_of(split_edges(keys, sizes, validation_share=0.0, test_share=0.0), sizes) == (3700, 0, 0)
