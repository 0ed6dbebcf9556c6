"""Text from a model: token by token, one prompt or a batch of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from ..data import Tokenizer
from ..errors import InputError
from .loading import LoadedModel
from .sampling import Sampling

Ended = Literal["end of text", "stop", "length"]
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Generated:
    """What a model wrote after a prompt."""

    prompt: str
    text: str
    tokens: int
    ended: Ended


def generate(
    loaded: LoadedModel,
    prompts: Sequence[str],
    *,
    sampling: Sampling,
    max_tokens: int,
    stop: Sequence[str] = (),
    on_text: Callable[[str], None] | None = None,
) -> tuple[list[Generated], float]:
    """Continue each prompt, and return the texts and the seconds that they took.

    Before each prompt stands what stood there in training. A text ends at end-of-text, before one of `stop`, after
    `max_tokens`, or where the model's context is full. `on_text` takes the text of a single prompt as it comes. No id
    that only pads the vocabulary is ever chosen. Raises InputError for a prompt that fills the context.
    """
    assert on_text is None or len(prompts) == 1
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    encoded = [_with_start(loaded, prompt) for prompt in prompts]
    length = max(map(len, encoded))
    problems = [
        f"prompt {prompt[:40]!r}… has {len(ids):,} tokens; the model sees {loaded.context:,}, so give fewer"
        for prompt, ids in zip(prompts, encoded, strict=True)
        if len(ids) >= loaded.context
    ]
    if problems:
        raise InputError(problems)
    ids_BT, mask_BT = _left_padded(encoded, length, pad=tokenizer.end_of_text)
    ends = end_ids(loaded)
    began = time.perf_counter()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if model.device.type == "cuda" else []):
        torch.manual_seed(sampling.seed)
        out_BT = model.generate(
            ids_BT.to(model.device),
            attention_mask=mask_BT.to(model.device),
            generation_config=_configuration(sampling, min(max_tokens, loaded.context - length), ends, tokenizer),
            logits_processor=LogitsProcessorList([RealIdsOnly(tokenizer.vocab_size)]),
            stopping_criteria=StoppingCriteriaList([StopTexts(tokenizer, length, stop)] if stop else []),
            streamer=_Streamer(tokenizer, stop, ends, on_text) if on_text else None,
        )
    seconds = time.perf_counter() - began
    rows = out_BT[:, length:].tolist()
    found = [finished(prompt, row, tokenizer, ends, stop) for prompt, row in zip(prompts, rows, strict=True)]
    return found, seconds


def _with_start(loaded: LoadedModel, prompt: str) -> list[int]:
    ids = loaded.tokenizer.encode(prompt) if prompt else []
    return [loaded.start.id, *ids] if loaded.start.always or not ids else ids


def _left_padded(rows: Sequence[Sequence[int]], length: int, *, pad: int) -> tuple[Tensor, Tensor]:
    ids = [[pad] * (length - len(row)) + list(row) for row in rows]
    mask = [[0] * (length - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def end_ids(loaded: LoadedModel) -> list[int]:
    """The ids after which a text is over: the model's own, and the tokenizer's end-of-text."""
    generation: Any = loaded.model.generation_config
    stated = generation.eos_token_id
    several = stated if isinstance(stated, list) else [] if stated is None else [stated]
    return sorted({*several, loaded.tokenizer.end_of_text})


def _configuration(sampling: Sampling, max_tokens: int, ends: list[int], tokenizer: Tokenizer) -> GenerationConfig:
    """Every choice said here: what a folder's generation_config.json says of sampling does not come in."""
    chosen = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    return GenerationConfig(
        max_new_tokens=max_tokens,
        do_sample=sampling.temperature > 0,
        eos_token_id=ends,
        pad_token_id=tokenizer.end_of_text,
        num_beams=1,
        repetition_penalty=1.0,
        **(chosen if sampling.temperature > 0 else {}),
    )


class RealIdsOnly(LogitsProcessor):
    """Rows of the head beyond the tokenizer's ids are never chosen."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if scores.shape[-1] > self.vocab_size:
            scores[:, self.vocab_size :] = float("-inf")
        return scores


class StopTexts(StoppingCriteria):
    """A row is over when one of the texts is in what was generated."""

    def __init__(self, tokenizer: Tokenizer, prompt_length: int, stop: Sequence[str]) -> None:
        self.tokenizer, self.prompt_length, self.stop = tokenizer, prompt_length, stop

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        rows = input_ids[:, self.prompt_length :].tolist()
        over = [_cut(self.tokenizer.decode(row), self.stop)[1] for row in rows]
        return torch.tensor(over, device=input_ids.device)


class _Streamer(BaseStreamer):
    """Gives out the text as far as it is certain: no half characters, and nothing that may turn out to be a stop."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], ends: Sequence[int], on_text: Callable[[str], None]
    ) -> None:
        self.tokenizer, self.stop, self.ends, self.on_text = tokenizer, stop, ends, on_text
        self.ids: list[int] | None = None
        self.shown = 0

    def put(self, value: Tensor) -> None:
        if self.ids is None:  # the prompt comes first
            self.ids = []
            return
        self.ids += [i for i in value.flatten().tolist() if i not in self.ends]
        text, stopped = _cut(self.tokenizer.decode(self.ids), self.stop)
        if not stopped:
            text = text[: len(text) - _uncertain(text, self.stop)]
        self._show(text)

    def end(self) -> None:
        self._show(_cut(self.tokenizer.decode(self.ids or []), self.stop)[0])

    def _show(self, text: str) -> None:
        if len(text) > self.shown:
            self.on_text(text[self.shown :])
            self.shown = len(text)


def _uncertain(text: str, stop: Sequence[str]) -> int:
    """Characters at the end that may still change: bytes that are no character yet, and the beginning of a stop."""
    incomplete = len(text) - len(text.rstrip(REPLACEMENT))
    begun = [n for each in stop for n in range(1, len(each)) if text.endswith(each[:n])]
    return max([incomplete, *begun])


def _cut(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """`text` up to the first of `stop` in it, and whether there is one."""
    places = [place for place in (text.find(each) for each in stop) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def finished(
    prompt: str, row: Sequence[int], tokenizer: Tokenizer, ends: Sequence[int], stop: Sequence[str]
) -> Generated:
    """What the ids of `row` say after `prompt`, up to the first of `ends` and of `stop`."""
    end = next((place for place, i in enumerate(row) if i in ends), None)
    ids = row if end is None else row[:end]
    text, stopped = _cut(tokenizer.decode(ids), stop)
    ended: Ended = "stop" if stopped else "length" if end is None else "end of text"
    return Generated(prompt, text, len(ids), ended)
