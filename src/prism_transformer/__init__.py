"""The workbench for attention-head schedules.

The public names are resolved on first use (PEP 562), so that `import prism_transformer` and everything about schedules
work without importing torch.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "HeadSchedule": ".model.head_schedule",
    "PrismConfig": ".model.configuration_prism",
    "PrismForCausalLM": ".model.modeling_prism",
    "train": ".training.loop",
    "compare": ".study.compare",
    "evaluate": ".evaluation.evaluate",
    "attention_distance": ".evaluation.attention",
    "search_schedules": ".search.run",
}

__all__ = [
    "HeadSchedule",
    "PrismConfig",
    "PrismForCausalLM",
    "attention_distance",
    "compare",
    "evaluate",
    "search_schedules",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
