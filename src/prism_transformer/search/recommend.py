"""Of schedules that cannot be told apart, the one to take: by the guidelines and the limits of the device."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..design.guidelines import Device, check_guidelines
from ..model.head_schedule import RuleResult
from .candidates import BASELINE, Candidate


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A set of schedules that cannot be told apart, the best loss first, and the limits to choose by."""

    in_set: Sequence[Candidate]
    base_heads: int
    device: Device
    tensor_parallel: int | None

    def recommended(self) -> str:
        """The schedule with the fewest failed rules, then warnings, then the lowest loss.

        Uniform only where nothing else is as good: it keeps the guidelines of widening by not widening, so they would
        choose it in every set that holds it, and the final comparison would have nothing to put to the test.
        """
        outcomes = {each.name: [rule.outcome for rule in self._rules(each)] for each in self.in_set}
        fewest = min(of.count("fail") for of in outcomes.values())
        possible = [name for name, of in outcomes.items() if of.count("fail") == fewest]
        if possible[0] != BASELINE:
            possible = [name for name in possible if name != BASELINE]
        return min(possible, key=lambda name: outcomes[name].count("warn"))

    def against(self, name: str) -> list[str]:
        """Sentences of the rules that this schedule does not keep."""
        each = next(each for each in self.in_set if each.name == name)
        return [rule.sentence for rule in self._rules(each) if rule.outcome != "pass"]

    def why(self, name: str) -> str:
        """Why this schedule is the one."""
        best = self.in_set[0].name
        if len(self.in_set) == 1:
            return "the only schedule that was not shown to be worse than another"
        if name != best:
            return f"it cannot be told from {best}, whose loss was lower, and keeps more of the guidelines"
        if name == BASELINE:
            return "the lowest loss of those that cannot be told apart"
        return (
            "the lowest loss of those that cannot be told apart, and no other widened one keeps more of the guidelines"
        )

    def _rules(self, each: Candidate) -> list[RuleResult]:
        """Its guidelines; the one about devices that share heads only where some shall."""
        found = check_guidelines(
            each.schedule, base_heads=self.base_heads, device=self.device, tensor_parallel=self.tensor_parallel
        )
        return [rule for rule in found if self.tensor_parallel is not None or rule.name != "tensor-parallel"]
