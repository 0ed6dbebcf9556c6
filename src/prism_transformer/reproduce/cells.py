"""A row as text, the same on the terminal and on the page."""

from ..study.wording import plain, signed
from .beside import Row

COLUMNS = ("", "the paper", "ours, mean ± sd", "seeds", "ours - the paper", "within the seeds' spread")
_DIGITS = {"nats": 4, "%": 1, "words": 1, "tokens": 1, "tokens/s": 0, "ratio": 3}
_UNITS = {"%": " %", "tokens/s": " tokens/s"}


def cells(row: Row) -> list[str]:
    """One text for each of COLUMNS; none is empty but where the paper has nothing to compare."""
    digits = _DIGITS[row.unit]
    what = row.what + _UNITS.get(row.unit, "") + (f" ({row.note})" if row.note else "")
    return [what, _paper(row, digits), _ours(row, digits), str(row.n), _difference(row, digits), _within(row)]


def _paper(row: Row, digits: int) -> str:
    if row.paper is None:
        return row.paper_says or "not in it"
    return _number(row.paper, digits) + (f" ± {plain(row.paper_sd, digits)}" if row.paper_sd is not None else "")


def _ours(row: Row, digits: int) -> str:
    if row.ours is None:
        return "not there yet"
    return _number(row.ours, digits) + (f" ± {plain(row.ours_sd, digits)}" if row.ours_sd is not None else "")


def _difference(row: Row, digits: int) -> str:
    if row.paper is None and row.low is not None:
        return f"[{signed(row.low, digits)}, {signed(row.high, digits)}]"
    if row.difference is None:
        return "not compared"
    return signed(row.difference, digits) + (
        f" ± {plain(row.half_width, digits)}" if row.half_width is not None else ""
    )


def _within(row: Row) -> str:
    if row.paper_says:
        return {True: "holds", False: "does not hold", None: "cannot tell"}[row.within]
    if row.within is None:
        return "not to be said"
    return "yes" if row.within else "no"


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if digits == 0 else plain(value, digits)
