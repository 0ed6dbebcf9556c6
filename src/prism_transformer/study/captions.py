"""The sentences under the report's tables that depend on what was measured."""

from collections.abc import Mapping
from typing import Any

from ..wording import count, listed
from .documents import LEAST_DOCUMENTS
from .statistics import look_alpha

Results = Mapping[str, Any]


def captions(results: Results) -> dict[str, str]:
    """Where on the page -> its sentences; "" where there is nothing to say."""
    return {
        "few_documents": _few_documents(results["documents"]),
        "no_tokens": _no_tokens(results),
        "adjustment": _adjustment(results),
    }


def _few_documents(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """What stands in place of the table by document where no interval over documents is known."""
    if not documents or any(entry["low"] is not None for entry in documents.values()):
        return ""
    found = max(entry["documents"] for entry in documents.values())
    whose = "its" if found == 1 else "their"
    return (
        f"The validation text has {count(found, 'document')}, and an interval needs at least {LEAST_DOCUMENTS}: "
        f"how much {whose} choice matters cannot be known."
    )


def _no_tokens(results: Results) -> str:
    """Why arms have a dash for their equivalent tokens."""
    empty = [name for name, entry in results["differences"].items() if entry["equivalent_tokens"] is None]
    rulers = [name for name in empty if results["arms"][name]["role"] == "calibration_less"]
    others = [name for name in empty if name not in rulers]
    baseline = results["baseline"]
    told = [
        f"{name} has a dash: it is {baseline} on fewer tokens, a number that is set and not found." for name in rulers
    ]
    if others:
        told.append(
            f"A dash for {listed(others)}: no seed has both a difference and a slope of the loss, or the loss of "
            f"{baseline} does not fall with tokens."
        )
    return " ".join(told)


def _adjustment(results: Results) -> str:
    """What makes p, adjusted, differ from p, and the levels of the intervals from each other."""
    look, confidence = results["endpoint"]["look"], results["endpoint"]["confidence"]
    factor = (1 - confidence) / look_alpha(look, confidence)
    chance = f"{(1 - confidence) * 100:.3g} %"
    text = (
        f"p, adjusted, is held against {chance}: it is p × {factor:.4g}, since look {look} may spend only a part of "
        f"this chance of a false word, and grows by Holm's rule where several secondary arms are judged together; the "
        "intervals that decide have other levels for the same two reasons."
    )
    if results["calibration"] is None:
        return text
    extent = "nothing" if look == 1 else "the look alone"
    return f"{text} Calibration arms, whose truth is known, are judged one by one and corrected for {extent}."
