"""Figures as people read them; the same in the verdict, the table and the page."""

import math
from collections.abc import Mapping
from typing import Any

from ..wording import listed

NOTABLE = 0.05

MOST_DIGITS = 6
"""after the point; a figure that is zero even so is none that anybody measured"""


def decimals(spread: float | None, *, least: int = 2) -> int:
    """Digits after the point that show a spread with two figures; 4 where none is known."""
    if not spread:
        return 4
    return max(least, min(6, 1 - math.floor(math.log10(abs(spread)))))


def signed(value: float | None, digits: int = 4) -> str:
    """+0.0123; a dash where there is no value."""
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def plain(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def percent(share: float | None, digits: int | None = None, *, sign: bool = True) -> str:
    """A share of the loss in percent; without `digits`, as many as small shares need. Only zero reads as zero."""
    if share is None:
        return "–"
    size = abs(share) * 100
    if digits is None:
        digits = 1 if size >= 10 else 2 if size >= 0.095 or size == 0 else 3
    digits = _digits_above_zero(size, digits)
    return f"{share * 100:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def _digits_above_zero(size: float, digits: int) -> int:
    """`digits`, or the few more without which a size would read as zero."""
    return next((more for more in range(digits, MOST_DIGITS + 1) if round(size, more)), digits)


def percent_digits(low: float | None, high: float | None) -> int | None:
    """The digits in which an interval of shares, its ends and its middle are all written."""
    return None if low is None or high is None or low == high else decimals((high - low) * 100, least=1)


def level(confidence: float) -> str:
    """0.95 -> "95 %"."""
    return f"{confidence * 100:.4g} %"


def uniforms_that_do_as_well(against: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What is to be said of wider uniform heads that an arm is not lower than; None where it is lower than all."""
    told = {
        "higher": "Lower still: {names}, so wider uniform heads do better here.",
        "equivalent": "Equivalent: {names}, so wider uniform heads do as much.",
        "cannot_tell": "It is not shown to be lower than {names}, so uniformly wider heads may do as well.",
    }
    named = {word: [name for name, entry in against.items() if entry["decision"] == word] for word in told}
    return " ".join(told[word].format(names=listed(names)) for word, names in named.items() if names) or None


def tokens_factor(factor: float) -> str:
    """1.05 -> "5.0 % more"; 0.97 -> "3.0 % fewer"; 1 -> "just as many"."""
    change = abs(factor - 1) * 100
    if not round(change, MOST_DIGITS):
        return "just as many"
    digits = _digits_above_zero(change, 0 if change >= 20 else 1)
    return f"{change:.{digits}f} % {'more' if factor >= 1 else 'fewer'}"


def speed_caveat(results: Mapping[str, Any]) -> str:
    """What it says of all speeds that arms of the baseline's heads, equally fast, ran at others; or nothing.

    Where it says something, an estimate at equal time is worth nothing, and is shown nowhere.
    """
    heads = results["arms"][results["baseline"]]["heads"]
    speeds = [arm["relative_speed"] for arm in results["arms"].values() if arm["heads"] == heads]
    apart = max((abs(speed - 1) for speed in speeds if speed is not None), default=0.0)
    if apart < NOTABLE:
        return ""
    return (
        f"Arms with the same heads differ in speed by {100 * apart:.0f} % here, from other work on the machine, "
        "so speeds mean little and nothing is said at equal time."
    )


def rounded(value: float | None, like: float | None = None) -> str:
    """A score with as many digits as its size asks for; `like`: as many as another figure has, of which it is the
    error."""
    if value is None:
        return "–"
    size = abs(value if like is None else like)
    return f"{value:{',.4f' if size < 10 else ',.2f' if size < 1000 else ',.0f' if size < 1e6 else '.3g'}}"
