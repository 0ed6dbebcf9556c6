"""A model as lm-evaluation-harness asks it: the log-likelihood of an ending, of a whole text, and greedy generation.

Encodes with the tokenizer of training, so that the harness scores exactly the ids that the model learned. Needs the
extra `eval`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from lm_eval.api.model import LM
from transformers import LogitsProcessorList, StoppingCriteriaList

from ..errors import DivergedError
from .generation import RealIdsOnly, StopTexts, end_ids, finished
from .loading import LoadedModel
from .loss import MOST_LOGITS

GENERATED_TOKENS = 256
"""Where a task states no limit; the harness's own default."""


class Window(NamedTuple):
    """Tokens that the model sees at once: the last `scored` of `ids` are predicted from those before them."""

    ids: list[int]
    scored: int


def encode_pair(encode: Callable[[str], list[int]], context: str, ending: str) -> tuple[list[int], list[int]]:
    """The ids of a context and of its ending, which is empty only where both texts are.

    White space at the end of the context is moved to the ending. Both are encoded as one text and cut where it leaves
    the ids of the context alone, so that a token across the join is predicted, not given away.
    """
    kept = context.rstrip()
    context, ending = kept, context[len(kept) :] + ending
    whole, alone = encode(context + ending), encode(context)
    cut = next((k for k, (a, b) in enumerate(zip(whole, alone, strict=False)) if a != b), min(len(whole), len(alone)))
    cut = max(0, min(cut, len(whole) - 1))
    return whole[:cut], whole[cut:]


def rolling_windows(before: int, ids: list[int], context: int) -> list[Window]:
    """Windows that predict each of `ids` once, the first one from the token `before`.

    They overlap by one token, but for the last one, which sees as much as the context holds: the harness's rule.
    """
    if not ids:
        return []
    row = [before, *ids]
    ends = [*range(context + 1, len(row), context), len(row)]
    starts = [1, *ends[:-1]]
    return [Window(row[max(0, end - context - 1) : end], end - start) for start, end in zip(starts, ends, strict=True)]


def ending_windows(context_ids: list[int], ending_ids: list[int], context: int) -> list[Window]:
    """The windows that predict an ending: one, cut on the left where it is too long, unless the ending alone is."""
    if not ending_ids or len(ending_ids) > context:
        return rolling_windows(context_ids[-1], ending_ids, context)
    return [Window((context_ids + ending_ids)[-(context + 1) :], len(ending_ids))]


class HarnessModel(LM):  # type: ignore[misc]
    """A loaded model for `lm_eval.simple_evaluate`."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_size: int = 16,
        autocast: AbstractContextManager[object] | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        super().__init__()
        self._loaded = loaded
        self._model: Any = loaded.model
        self._batch_size, self._autocast, self._on_progress = batch_size, autocast, on_progress
        self.truncated: dict[str, set[int]] = {}
        """Of each task the items that the context did not hold."""

    @property
    def tokenizer_name(self) -> str:
        return self._loaded.tokenizer.name

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(nats, greedy) of each request's (context, ending)."""
        windows = []
        for request in requests:
            before, ending = self._encode_pair(*request.args)
            windows.append(ending_windows(before, ending, self._loaded.context))
            if len(before) + len(ending) > self._loaded.context + 1:
                self.truncated.setdefault(request.task_name, set()).add(request.doc_id)
        return self._totals(windows)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Nats of each request's whole text, which is longer than the context without being truncated."""
        start, context = self._loaded.start.id, self._loaded.context
        ids = [self._loaded.tokenizer.encode(request.args[0]) for request in requests]
        return [nats for nats, _ in self._totals([rolling_windows(start, each, context) for each in ids])]

    @torch.no_grad()
    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The text that the model goes on with, up to the first of the request's stops."""
        return [self._generate(request) for request in requests]

    def _generate(self, request: Any) -> str:
        prompt, options = request.args[0], dict(request.args[1])
        until, wanted = options.pop("until", []), options.pop("max_gen_toks", GENERATED_TOKENS)
        stops = [until] if isinstance(until, str) else list(until)
        room = self._loaded.context - wanted
        ids = self._prefix() + self._loaded.tokenizer.encode(prompt)
        if len(ids) > room:
            self.truncated.setdefault(request.task_name, set()).add(request.doc_id)
            ids = ids[-max(1, room) :]
        options.setdefault("do_sample", options.get("temperature", 0) > 0)
        if not options["do_sample"]:
            options.pop("temperature", None)

        tokenizer, ends = self._loaded.tokenizer, end_ids(self._loaded)
        input_BT = torch.tensor([ids], device=self._model.device)
        output_BT = self._model.generate(
            input_BT,
            attention_mask=torch.ones_like(input_BT),
            max_new_tokens=min(wanted, self._loaded.context - len(ids)),
            eos_token_id=ends,
            pad_token_id=tokenizer.end_of_text,
            logits_processor=LogitsProcessorList([RealIdsOnly(tokenizer.vocab_size)]),
            stopping_criteria=StoppingCriteriaList([StopTexts(tokenizer, len(ids), stops)]),
            **options,
        )
        return finished(prompt, output_BT[0, len(ids) :].tolist(), tokenizer, ends, stops).text

    def _prefix(self) -> list[int]:
        return [self._loaded.start.id] if self._loaded.start.always else []

    def _encode_pair(self, context: str, ending: str) -> tuple[list[int], list[int]]:
        before, after = encode_pair(self._loaded.tokenizer.encode, context, ending)
        return self._prefix() + before or [self._loaded.start.id], after

    def _totals(self, requests: list[list[Window]]) -> list[tuple[float, bool]]:
        """The sum over each request's windows."""
        scores = iter(self._score([window for windows in requests for window in windows]))
        totals = []
        for windows in requests:
            parts = [next(scores) for _ in windows]
            totals.append((sum(nats for nats, _ in parts), all(greedy for _, greedy in parts)))
        return totals

    def _score(self, windows: list[Window]) -> list[tuple[float, bool]]:
        """Each window's nats, and whether the model would have gone on so; long windows first, in batches."""
        order = sorted(range(len(windows)), key=lambda i: -len(windows[i].ids))
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(windows)
        done = 0
        while done < len(order):
            size = self._rows([windows[i] for i in order[done : done + self._batch_size]])
            batch = order[done : done + size]
            for i, score in zip(batch, self._score_batch([windows[i] for i in batch]), strict=True):
                scores[i] = score
            done += size
            self._on_progress(done, len(order))
        return scores

    def _rows(self, candidates: list[Window]) -> int:
        """How many of the candidates go into one forward pass."""
        fitting: int = MOST_LOGITS // (self._model.config.vocab_size * _kept(candidates))
        return max(1, min(len(candidates), fitting))

    @torch.no_grad()
    def _score_batch(self, batch: list[Window]) -> list[tuple[float, bool]]:
        """Shorter windows are padded on the right, which no earlier token sees."""
        length, kept = max(len(window.ids) for window in batch) - 1, _kept(batch)
        input_BT = torch.zeros(len(batch), length, dtype=torch.long)
        target_BT = torch.full((len(batch), length), -100)
        for row, (ids, scored) in enumerate(batch):
            input_BT[row, : len(ids) - 1] = torch.tensor(ids[:-1])
            target_BT[row, len(ids) - 1 - scored : len(ids) - 1] = torch.tensor(ids[-scored:])
        target_BS = target_BT[:, -kept:].to(self._model.device)
        with self._autocast or nullcontext():
            logits_BSV = self._model(input_BT.to(self._model.device), use_cache=False, logits_to_keep=kept).logits
        logits_BSV = logits_BSV[:, -kept:].float()
        # Flat, so that the vocabulary is the innermost dimension: along any other, torch sums 50,000 terms one by one.
        losses_N = F.cross_entropy(logits_BSV.flatten(0, 1), target_BS.flatten(), reduction="none")
        nats_B = -losses_N.view(target_BS.shape).double().sum(dim=1)
        greedy_B = ((logits_BSV.argmax(dim=-1) == target_BS) | (target_BS == -100)).all(dim=1)
        if not bool(nats_B.isfinite().all()):
            raise DivergedError(f"{self._loaded.path}: the model answers with numbers that are not finite")
        return list(zip(nats_B.tolist(), greedy_B.tolist(), strict=True))


def _kept(batch: Sequence[Window]) -> int:
    """Positions from the right end of the longest window on which some window of the batch is scored."""
    length = max(len(window.ids) for window in batch)
    return max(length - len(window.ids) + window.scored for window in batch)
