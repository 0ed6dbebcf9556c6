"""The one validation loss: nats a token over a fixed, packed stream, in bits per byte, and by place in the context."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from ..checkpoint import as_written
from ..data.batches import EvaluationWindows
from ..data.corpus import TokenStream


@dataclass(frozen=True)
class TextLoss:
    """What a model scores on a stream of tokens."""

    nats_per_token: float
    tokens: int
    """Tokens predicted."""
    bits_per_byte: float | None
    """None where only a part of the stream was predicted, whose bytes of text are not known."""


def text_loss(losses: npt.NDArray[np.float32], stream: TokenStream) -> TextLoss:
    """The mean of `losses` [tokens], of all tokens of `stream` but the first, or of those of some of its windows."""
    nats = float(losses.sum(dtype=np.float64))
    bits_per_byte = None
    if len(losses) == len(stream) - 1 and stream.text_bytes:  # the bytes of other programs' shards take long to count
        bits_per_byte = nats / math.log(2) / stream.text_bytes
    return TextLoss(nats / len(losses), len(losses), bits_per_byte)


MOST_LOGITS = 2**28
"""Logits of one forward pass (1 GiB in fp32): a large vocabulary gets smaller batches."""


class Ranks(Protocol):
    """The processes that share a measurement: which one this is, and how their parts become one."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def sum(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sum over ranks of arrays of one shape."""
        ...


@torch.no_grad()
def token_losses(
    model: PreTrainedModel,
    stream: TokenStream,
    *,
    context: int,
    batch_size: int,
    max_tokens: int | None = None,
    autocast: AbstractContextManager[object] | None = None,
    ranks: Ranks | None = None,
    before_batch: Callable[[], None] = lambda: None,
) -> npt.NDArray[np.float32]:
    """[tokens] the loss of each token of `stream` but the first, in nats, each predicted exactly once.

    A window has `context` tokens; a token sees those of its window only, so the first ones are predicted from little.
    With `max_tokens` these are windows spread over the stream, as many as have so many targets: neighbours are of one
    document, and say little about the others. The model's mode is restored and no random number is drawn, so evaluating
    leaves training as it is. Raises InputError for a stream of fewer than 2 tokens, and what `before_batch` raises.

    Each of `ranks` takes every size-th batch, and all of them return the whole. They run equally often: a rank that no
    batch is left for repeats one, since a model that lies on all ranks answers only when all of them ask.
    """
    rank, size = (ranks.rank, ranks.size) if ranks else (0, 1)
    windows = EvaluationWindows(stream, context=context)
    chosen = _spread(windows, max_tokens)
    fitting = max(1, MOST_LOGITS // (context * model.config.vocab_size))
    batches = _batches(windows, chosen, min(batch_size, fitting))
    losses = np.zeros((len(chosen) - 1) * context + len(windows[chosen[-1]]) - 1, dtype=np.float32)
    was_training = model.training
    model.train(False)
    try:
        with as_written(model), autocast or nullcontext():
            for number in range(rank, rank + len(batches) + -len(batches) % size, size):
                before_batch()
                batch = batches[number % len(batches)]
                of_batch = _losses(model, np.stack([windows[chosen[place]] for place in batch]))
                if number < len(batches):
                    losses[batch.start * context :][: len(of_batch)] = of_batch
    finally:
        model.train(was_training)
    return ranks.sum(losses) if ranks else losses


def _losses(model: PreTrainedModel, ids_BT: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """[B * (T - 1)] the loss of each token of a batch but the first of each row."""
    batch = torch.from_numpy(ids_BT).to(model.device)
    logits_BTV = model(batch[:, :-1], use_cache=False).logits.float()
    losses_N = F.cross_entropy(logits_BTV.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
    return losses_N.cpu().numpy()


@dataclass(frozen=True)
class DocumentLosses:
    """What each document of a stream contributes to the loss; documents sum to the total."""

    nats: npt.NDArray[np.float64]
    """[documents] the summed loss of a document's tokens and of the end of text after it."""
    tokens: npt.NDArray[np.int64]
    """[documents] how many those are."""


def document_losses(losses: npt.NDArray[np.float32], stream: TokenStream) -> DocumentLosses:
    """`losses` [tokens] of all tokens of `stream` but the first, by document.

    A stream that begins in the middle of a document counts that piece as one more.
    """
    starts = stream.document_starts  # token i + 1 has loss i: a document's losses begin where its end-of-text stands
    firsts = np.union1d([0], starts[starts < len(losses)])
    nats = np.add.reduceat(losses, firsts, dtype=np.float64)
    return DocumentLosses(nats, np.diff(firsts, append=len(losses)))


@dataclass(frozen=True)
class PositionLoss:
    """The mean loss of the tokens that were predicted from `first` to `last` tokens of their window."""

    first: int
    last: int
    nats_per_token: float
    tokens: int


def loss_by_position(losses: npt.NDArray[np.float32], *, context: int) -> list[PositionLoss]:
    """How the loss falls as more of the context is seen: 1 token, 2, 3 to 4, 5 to 8, … up to the whole context.

    `losses` [tokens] are those of `token_losses` with the same context.
    """
    seen = np.arange(len(losses)) % context + 1
    found, first, last = [], 1, 1
    while first <= min(context, len(losses)):
        of_bucket = losses[(first <= seen) & (seen <= last)]
        found.append(PositionLoss(first, last, float(of_bucket.mean(dtype=np.float64)), len(of_bucket)))
        first, last = last + 1, min(2 * last, context)
    return found


def _spread(windows: EvaluationWindows, max_tokens: int | None) -> Sequence[int]:
    """The indices of all windows, or of as many as have `max_tokens` targets, evenly spread; one at the least."""
    count = len(windows)
    if max_tokens is not None:
        count = min(count, max(1, max_tokens // (len(windows[0]) - 1)))
    return [place * len(windows) // count for place in range(count)]


def _batches(windows: EvaluationWindows, chosen: Sequence[int], batch_size: int) -> list[range]:
    """The places in `chosen` of each batch: windows of equal length, the short last one on its own."""
    count = len(chosen)
    full = count if len(windows[chosen[-1]]) == len(windows[0]) else count - 1
    batches = [range(start, min(start + batch_size, full)) for start in range(0, full, batch_size)]
    return batches + ([range(full, count)] if full < count else [])
