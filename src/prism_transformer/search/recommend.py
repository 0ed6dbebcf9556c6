"""Of schedules that cannot be told apart, the one to take: by the guidelines and the limits of the device."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..design.guidelines import Device, check_guidelines
from .candidates import Candidate


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
    """The schedule of `in_set` (best loss first) with the fewest failed rules, then warnings, then the lowest loss."""
    rules = {
        each.name: check_guidelines(
            each.schedule, base_heads=base_heads, device=device, tensor_parallel=tensor_parallel
        )
        for each in in_set
    }

    def faults(name: str) -> tuple[int, int]:
        outcomes = [rule.outcome for rule in rules[name]]
        return outcomes.count("fail"), outcomes.count("warn")

    names = [each.name for each in in_set]
    best = min(names, key=faults)
    against = tuple(rule.sentence for rule in rules[best] if rule.outcome != "pass")
    if len(names) == 1:
        why = "the only schedule that was not shown to be worse than another"
    elif best == names[0]:
        why = "the lowest loss of those that cannot be told apart, and none of them keeps more of the guidelines"
    else:
        why = f"it cannot be told from {names[0]}, whose loss was lower, and keeps more of the guidelines"
    return Recommendation(best, against, why)
