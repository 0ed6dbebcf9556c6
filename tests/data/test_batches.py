import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.data.batches import EvaluationWindows, n_windows, packing, train_windows
from prism_transformer.data.corpus import TokenStream
from prism_transformer.data.tokenizer import ByteTokenizer
from prism_transformer.errors import InputError


class WideTokenizer(ByteTokenizer):
    """Ids up to a million, so that each token of a stream can be its own position."""

    vocab_size = 1_000_000
    end_of_text = 999_999


def stream_of(length: int, parts: int = 1) -> TokenStream:
    """The ids 0, 1, 2, …: a window then shows where it starts."""
    ids = np.array_split(np.arange(length, dtype=np.uint32), parts)
    return TokenStream(
        where="train split", parts=ids, names=[f"{i}.bin" for i in range(parts)], tokenizer=WideTokenizer()
    )


sizes = st.tuples(st.integers(1, 9), st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + 1 + pair[1]))


@given(sizes, st.integers(1, 7), st.integers(0, 2**32), st.integers(1, 4))
def test_each_epoch_holds_each_window_once(size: tuple[int, int], batch_size: int, seed: int, epochs: int) -> None:
    """By definition window i is tokens i x context .. (i + 1) x context, both included."""
    context, length = size
    stream = stream_of(length, parts=3)
    windows = (length - 1) // context
    steps = -(-windows * epochs // batch_size)
    batches = [
        train_windows(stream, context=context, batch_size=batch_size, seed=seed, step=step) for step in range(steps)
    ]
    rows = np.concatenate(batches)[: windows * epochs]
    assert np.array_equal(rows, rows[:, :1] + np.arange(context + 1))
    for epoch in range(epochs):
        starts = rows[epoch * windows : (epoch + 1) * windows, 0]
        assert sorted(starts.tolist()) == [window * context for window in range(windows)]


@given(st.integers(0, 50), st.integers(1, 6), st.integers(1, 6))
def test_windows_do_not_depend_on_how_a_batch_is_divided(step: int, ranks: int, per_rank: int) -> None:
    """The same windows in the same order, for 1 batch of n or n batches of 1: so for any number of ranks."""
    stream, batch_size = stream_of(101), ranks * per_rank
    whole = train_windows(stream, context=4, batch_size=batch_size, seed=3, step=step)
    singly = [
        train_windows(stream, context=4, batch_size=1, seed=3, step=step * batch_size + i)[0] for i in range(batch_size)
    ]
    assert np.array_equal(whole, np.stack(singly))


def test_order_depends_on_seed_and_epoch() -> None:
    stream = stream_of(1001)

    def order(seed: int, epoch: int) -> list[int]:
        return train_windows(stream, context=10, batch_size=100, seed=seed, step=epoch)[:, 0].tolist()

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(each) for each in orders}) == 4
    assert order(0, 1) == orders[1]
    assert orders[0] != sorted(orders[0])


def test_order_is_the_documented_one() -> None:
    """The order is a promise to every checkpoint: raw bits of PCG64 seeded by [seed, epoch], sorted."""
    bits = np.random.PCG64(np.random.SeedSequence([7, 2])).random_raw(20)
    rows = train_windows(stream_of(101), context=5, batch_size=20, seed=7, step=2)
    assert (rows[:, 0] // 5).tolist() == np.argsort(bits, kind="stable").tolist()


@pytest.mark.parametrize(("length", "windows", "dropped"), [(6, 1, 0), (10, 1, 4), (11, 2, 0), (12, 2, 1)])
def test_kept_and_dropped_make_the_whole(length: int, windows: int, dropped: int) -> None:
    """Context 5: a window takes 6 tokens, each further one 5 more."""
    stream = stream_of(length)
    result = packing(stream, context=5)
    assert (result.windows, result.dropped, result.kept + result.dropped) == (windows, dropped, length)
    assert n_windows(stream, 5) == windows


def test_longest_document_counts_its_end_of_text() -> None:
    ids = np.array([256, 1, 2, 256, 3, 4, 5, 256], dtype=np.uint16)
    stream = TokenStream(where="train", parts=[ids], names=["a"], tokenizer=ByteTokenizer())
    assert packing(stream, context=2).longest_document == 4


def test_text_shorter_than_a_context_is_refused_with_numbers_and_remedy() -> None:
    with pytest.raises(
        InputError, match=r"train split: 5 tokens, .* context 5 takes 6; lower the context to at most 4"
    ):
        train_windows(stream_of(5), context=5, batch_size=2, seed=0, step=0)
    train_windows(stream_of(5), context=4, batch_size=2, seed=0, step=0)


@pytest.mark.parametrize("context", [0, -3])
def test_context_below_one_is_refused(context: int) -> None:
    with pytest.raises(InputError, match=f"context={context}"):
        n_windows(stream_of(5), context)


@given(st.integers(2, 60), st.integers(1, 12))
def test_evaluation_predicts_each_token_once_in_order(length: int, context: int) -> None:
    windows = EvaluationWindows(stream_of(length, parts=2), context=context)
    targets = [token for window in windows for token in window[1:].tolist()]
    assert targets == list(range(1, length))
    for window in windows:
        assert window.tolist() == list(range(window[0], window[0] + len(window)))
        assert 2 <= len(window) <= context + 1
    assert all(len(window) == context + 1 for window in windows[:-1])


def test_evaluation_windows_are_a_sequence() -> None:
    windows = EvaluationWindows(stream_of(11), context=4)
    assert len(windows) == 3
    assert windows[-1].tolist() == [8, 9, 10]
    with pytest.raises(IndexError):
        windows[3]


def test_nothing_to_predict_is_refused() -> None:
    with pytest.raises(InputError, match="1 tokens"):
        EvaluationWindows(stream_of(1), context=4)
