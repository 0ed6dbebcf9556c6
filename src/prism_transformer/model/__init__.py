"""The network, self-contained: what is exported beside the weights.

Names are resolved on first use (PEP 562), so that schedules can be handled without importing torch.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "HeadSchedule": ".head_schedule",
    "RuleResult": ".head_schedule",
    "ScheduleError": ".head_schedule",
    "PrismAttention": ".modeling_prism",
    "PrismConfig": ".configuration_prism",
    "PrismForCausalLM": ".modeling_prism",
    "PrismModel": ".modeling_prism",
    "PrismRotaryEmbedding": ".modeling_prism",
}

__all__ = [
    "HeadSchedule",
    "PrismAttention",
    "PrismConfig",
    "PrismForCausalLM",
    "PrismModel",
    "PrismRotaryEmbedding",
    "RuleResult",
    "ScheduleError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
