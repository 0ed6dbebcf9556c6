"""Of schedules that cannot be told apart, the one to take: by the guidelines and the limits of the device."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..design.guidelines import Device, check_guidelines
from .candidates import BASELINE, Candidate


@dataclass(frozen=True)
class Recommendation:
    """One schedule with what speaks against it, and why it is the one."""

    name: str
    against: tuple[str, ...]
    """sentences of the rules that it does not keep"""
    why: str


def recommend(
    in_set: Sequence[Candidate], *, base_heads: int, device: Device, tensor_parallel: int | None
) -> Recommendation:
    """The schedule of `in_set` (best loss first) with the fewest failed rules, then warnings, then the lowest loss.

    Uniform only where nothing else is as good: it keeps the guidelines of widening by not widening, so they would
    choose it in every set that holds it, and the final comparison would have nothing to put to the test.
    """
    rules = {
        each.name: check_guidelines(
            each.schedule, base_heads=base_heads, device=device, tensor_parallel=tensor_parallel
        )
        for each in in_set
    }

    def number(name: str, outcome: str) -> int:
        return sum(rule.outcome == outcome for rule in rules[name])

    names = [each.name for each in in_set]
    fewest = min(number(name, "fail") for name in names)
    possible = [name for name in names if number(name, "fail") == fewest]
    if possible[0] != BASELINE:
        possible = [name for name in possible if name != BASELINE]
    best = min(possible, key=lambda name: number(name, "warn"))
    against = tuple(rule.sentence for rule in rules[best] if rule.outcome != "pass")
    if len(names) == 1:
        why = "the only schedule that was not shown to be worse than another"
    elif best == BASELINE == names[0]:
        why = "the lowest loss of those that cannot be told apart"
    elif best == names[0]:
        why = (
            "the lowest loss of those that cannot be told apart, and no other widened one keeps more of the guidelines"
        )
    else:
        why = f"it cannot be told from {names[0]}, whose loss was lower, and keeps more of the guidelines"
    return Recommendation(best, against, why)
