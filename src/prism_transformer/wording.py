"""Words that every room writes alike."""

from collections.abc import Sequence


def count(n: int, noun: str) -> str:
    """1 run, 2 runs, 1,000 runs; 2 batches."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
