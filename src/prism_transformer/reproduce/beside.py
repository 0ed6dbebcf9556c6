"""The paper's number, ours, the difference, and whether it lies within the seeds' spread.

Within: the 95 % interval of the difference of the two means holds zero (Welch's, from the sds of the seeds; where the
paper states no sd, ours stands for it too). It takes two seeds at the least. Not within is no refutation yet: other
text, and settings that the paper leaves open, shift a mean by more than seeds do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from ..study.statistics import MIN_PAIRS, paired_t
from .paper import SEEDS, Figure

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number of the paper beside ours."""

    what: str
    unit: str
    """nats, %, words, tokens, tokens/s, ratio"""
    paper: float | None
    """None: the paper does not have it"""
    paper_sd: float | None = None
    paper_says: str = ""
    """in words, where it gives no number"""
    ours: float | None
    ours_sd: float | None = None
    n: int = 0
    """seeds, or pairs of seeds"""
    low: float | None = None
    high: float | None = None
    """the interval of ours over its seeds, where the paper has no number"""
    difference: float | None = None
    half_width: float | None = None
    """of the interval of the difference"""
    within: bool | None = None
    """None: not to be said"""
    missing: str = "not there yet"
    """what stands in place of ours where it is not there"""

    def mapping(self) -> dict[str, Any]:
        return asdict(self)


def beside(
    what: str, unit: str, paper: Figure | None, values: Sequence[float], *, missing: str = "not there yet"
) -> Row:
    """A row of one value a seed; without a paper's figure with the t interval of the values."""
    n = len(values)
    mean = float(np.mean(values)) if n else None
    sd = float(np.std(values, ddof=1)) if n >= MIN_PAIRS else None
    if paper is None:
        low, high = interval(values)
        return Row(what=what, unit=unit, paper=None, ours=mean, ours_sd=sd, n=n, low=low, high=high, missing=missing)
    difference = None if mean is None else mean - paper.mean
    spread = sd if paper.sd is None else paper.sd
    half = half_width(spread, sd, n) if sd is not None and spread else None  # a spread of zero is not known yet
    return Row(
        what=what,
        unit=unit,
        paper=paper.mean,
        paper_sd=paper.sd,
        ours=mean,
        ours_sd=sd,
        n=n,
        difference=difference,
        half_width=half,
        within=None if half is None or difference is None else abs(difference) <= half,
        missing=missing,
    )


def claim(what: str, unit: str, says: str, values: Sequence[float], *, sign: int) -> Row:
    """A row of a claim in words: below zero (sign -1), above (1), or about zero (0), by the interval of the values."""
    low, high = interval(values)
    holds = None
    if low is not None and high is not None:
        known = {-1: high < 0, 1: low > 0, 0: low <= 0 <= high}[sign]
        refuted = {-1: low > 0, 1: high < 0, 0: not low <= 0 <= high}[sign]
        holds = True if known else False if refuted else None
    row = beside(what, unit, None, values)
    return Row(**{**row.mapping(), "paper_says": says, "within": holds})


def half_width(first_sd: float, second_sd: float, n: int) -> float:
    """Of Welch's interval for the difference of a mean of `n` seeds and one of the paper's 3."""
    first, second = first_sd**2 / SEEDS, second_sd**2 / n
    if first + second == 0:
        return 0.0
    freedom = (first + second) ** 2 / (first**2 / (SEEDS - 1) + second**2 / (n - 1))
    return float(stats.t.isf((1 - CONFIDENCE) / 2, freedom)) * math.sqrt(first + second)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The t interval of a mean of paired differences; none below two."""
    if len(values) < MIN_PAIRS:
        return None, None
    found = paired_t(list(values), CONFIDENCE)
    return float(found.low), float(found.high)


def losses(results: Mapping[str, Any], arm: str) -> dict[int, float]:
    """seed -> final validation loss of the runs of an arm that are finished."""
    values = results["arms"][arm]["val_loss"] if arm in results["arms"] else []
    return {seed: value for seed, value in zip(results["seeds"], values, strict=False) if value is not None}


def paired(results: Mapping[str, Any], arm: str, other: str) -> list[float]:
    """arm - other in validation loss, seed by seed."""
    first, second = losses(results, arm), losses(results, other)
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
