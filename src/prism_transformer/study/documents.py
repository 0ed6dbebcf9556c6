"""The difference by validation document: what it says is about these checkpoints only, and never enters a verdict.

A seed is another checkpoint, so the interval over documents knows nothing of the spread over seeds. It answers another
question: how far would another validation text of the same kind move the difference between exactly these models?
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from .measured import Documents
from .statistics import Array

LEAST_DOCUMENTS = 10
"""fewer give no interval that means anything"""


def document_differences(
    documents: Mapping[str, Mapping[int, Documents]], *, baseline: str, confidence: float
) -> dict[str, dict[str, Any]]:
    """arm -> {documents, seeds, lower, mean, low, high} against the baseline, from arm -> seed -> losses by document.

    lower: the share of documents whose loss, summed over the seeds, is lower. mean: nats per token over all documents
    and seeds. low, high: its interval over documents, None for fewer than 10.
    """
    base = documents.get(baseline, {})
    found = {}
    for name, own in documents.items():
        seeds = sorted(own.keys() & base.keys())
        if name != baseline and seeds:
            nats_SD = np.array([np.subtract(own[seed].nats, base[seed].nats) for seed in seeds])
            found[name] = {"seeds": seeds, **_over_documents(nats_SD.mean(axis=0), base[seeds[0]].tokens, confidence)}
    return found


def _over_documents(nats_D: Array, tokens: Sequence[int], confidence: float) -> dict[str, Any]:
    """The mean of a ratio of two sums over documents; what a document adds beyond its share varies between texts."""
    tokens_D, documents = np.array(tokens), len(nats_D)
    mean = float(nats_D.sum() / tokens_D.sum())
    found: dict[str, Any] = {"documents": documents, "lower": float((nats_D < 0).mean()), "mean": mean}
    if documents < LEAST_DOCUMENTS:
        return found | {"low": None, "high": None}
    squares = float(((nats_D - mean * tokens_D) ** 2).sum())
    error = math.sqrt(squares * documents / (documents - 1)) / float(tokens_D.sum())
    half = float(special.stdtrit(documents - 1, 0.5 + confidence / 2)) * error
    return found | {"low": mean - half, "high": mean + half}
