"""Batches: which windows of a token stream a step sees. Pure functions of the stream, the seed and the step.

A window is context + 1 tokens; window i starts at i x context, so the target of its last token is the first token of
the next one, and each token is a target once. An epoch is a permutation of the windows, a function of (seed, epoch)
alone; the batch of a step is the next batch_size windows of the epochs laid end to end. So nothing has to be saved to
resume, and the number of ranks cannot change the data: each takes a slice of the global batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .corpus import TokenStream
from .shards import Ids


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How a stream of tokens is cut into windows; tokens == kept + dropped."""

    windows: int
    kept: int
    dropped: int
    """Tokens at the end that fill no window."""
    longest_document: int
    """In tokens, its end-of-text included. Where it is below the context, every window packs several documents."""


def n_windows(stream: TokenStream, context: int) -> int:
    """Windows of one epoch. Raises InputError where the stream is shorter than one."""
    if context < 1:
        raise InputError(f"context={context} must be at least 1")
    if len(stream) < context + 1:
        remedy = (
            f"lower the context to at most {len(stream) - 1}, or give more text" if len(stream) > 1 else "give text"
        )
        raise InputError(
            f"{stream.where}: {len(stream):,} tokens, but a window of context {context} takes {context + 1:,}; {remedy}"
        )
    return (len(stream) - 1) // context


def packing(stream: TokenStream, *, context: int) -> Packing:
    """The windows of one epoch and the tokens that they leave out."""
    windows = n_windows(stream, context)
    kept = windows * context + 1
    edges = np.concatenate([[0], stream.document_starts, [len(stream)]])
    longest = int(np.diff(edges).max())
    return Packing(windows=windows, kept=kept, dropped=len(stream) - kept, longest_document=longest)


@lru_cache(maxsize=4)
def epoch_order(windows: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """[windows] the order of one epoch: a permutation that is a pure function of its arguments.

    Sorted raw bits of PCG64, not Generator.permutation: numpy promises that the bits never change.
    """
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(windows)
    order = np.argsort(bits, kind="stable")
    order.flags.writeable = False
    return order


def train_windows(stream: TokenStream, *, context: int, batch_size: int, seed: int, step: int) -> Ids:
    """[batch_size, context + 1] the global batch of a step (from 0): inputs are [:, :-1], targets [:, 1:].

    A batch may span the edge of an epoch; no window is lost or repeated there.
    """
    windows = n_windows(stream, context)
    first = step * batch_size
    batch = np.empty((batch_size, context + 1), dtype=np.int64)
    for row in range(batch_size):
        epoch, index = divmod(first + row, windows)
        start = int(epoch_order(windows, seed=seed, epoch=epoch)[index]) * context
        batch[row] = stream.read(start, context + 1)
    return batch


class EvaluationWindows(Sequence[Ids]):
    """The windows of a stream on which a loss is measured: in order, the last one as short as the stream leaves it.

    Each token but the first is a target exactly once. Window i holds the tokens from i x context on, context + 1 of
    them where there are so many. Raises InputError for a stream of fewer than 2 tokens.
    """

    def __init__(self, stream: TokenStream, *, context: int) -> None:
        if context < 1:
            raise InputError(f"context={context} must be at least 1")
        if len(stream) < 2:
            raise InputError(
                f"{stream.where}: {len(stream)} tokens; at least 2 are needed to predict one: give more text"
            )
        self._stream, self._context = stream, context

    def __len__(self) -> int:
        return -(-(len(self._stream) - 1) // self._context)

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = range(len(self))[index] * self._context
        return self._stream.read(start, min(self._context + 1, len(self._stream) - start))
