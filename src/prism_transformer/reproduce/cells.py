"""A row as text, the same on the terminal and on the page."""

from ..study.wording import plain, signed
from .beside import Row

COLUMNS = ("", "paper", "ours", "n", "ours - paper", "within")
"""n: seeds, or pairs of seeds; within: the seeds' spread"""
NOT_SAID = "n/a"
_DIGITS = {"nats": 4, "%": 1, "words": 1, "tokens": 2, "tokens/s": 0, "ratio": 3}
_LARGE = 10_000
"""from which numbers are written without decimals"""


def cells(row: Row) -> list[str]:
    """One text for each of COLUMNS, none of them empty."""
    digits = _DIGITS[row.unit]
    what = f"{row.what}, {row.unit}" if row.unit in ("%", "tokens/s") else row.what
    return [what, _paper(row, digits), _ours(row, digits), str(row.n), _difference(row, digits), _within(row)]


def _paper(row: Row, digits: int) -> str:
    if row.paper is None:
        return row.paper_says or "not in it"
    return _number(row.paper, digits) + _spread(row.paper_sd, digits)


def _ours(row: Row, digits: int) -> str:
    return row.missing if row.ours is None else _number(row.ours, digits) + _spread(row.ours_sd, digits)


def _difference(row: Row, digits: int) -> str:
    if row.low is not None:
        return f"[{signed(row.low, digits)}, {signed(row.high, digits)}]"
    if row.difference is None:
        return NOT_SAID
    large = abs(row.difference) >= _LARGE
    return (f"{row.difference:+,.0f}" if large else signed(row.difference, digits)) + _spread(row.half_width, digits)


def _within(row: Row) -> str:
    if row.paper_says:
        return {True: "holds", False: "does not", None: "cannot tell"}[row.within]
    return {True: "yes", False: "no", None: NOT_SAID}[row.within]


def _spread(value: float | None, digits: int) -> str:
    return "" if value is None else f" ± {_number(value, digits)}"


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= _LARGE or digits == 0 else plain(value, digits)
