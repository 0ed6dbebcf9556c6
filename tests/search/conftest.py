"""A search whose trainings are made up: its statistics and its queue are the subject, and they are real."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.data import DataSettings
from prism_transformer.training.recipe import (
    DeviceSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    TrainingSettings,
)

SPEED = 1000.0
"""tokens a second, in place of a measurement"""

Begin = Callable[..., Any]


@pytest.fixture(scope="session")
def tiny(text: Path) -> Recipe:
    """8 steps of 64 tokens; 6 legal schedules: 1, 2 or 4 heads in two layers, then 4."""
    return Recipe(
        model=ModelSettings(layers=3, d_model=16, heads=4, context=16),
        data=DataSettings(paths=(str(text),), tokenizer="bytes", validation_share=0.1, test_share=0.1),
        optimizer=OptimizerSettings(lr=3e-3),
        training=TrainingSettings(tokens=512, tokens_per_step=64, micro_batch=4, evaluations=2, evaluation_tokens=100),
        device=DeviceSettings(device="cpu", dtype="float32", threads=1),
    )


@pytest.fixture
def begin(tiny: Recipe, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """begin(folder, budget="60 runs", storage=None, name="search", recipe=tiny, …): a search before its first run."""
    from prism_transformer.search.begin import open_search
    from prism_transformer.search.settings import SearchSettings
    from prism_transformer.study import speed
    from prism_transformer.study.estimate import Speed

    monkeypatch.setattr(speed, "training_speed", lambda recipe, size: Speed(SPEED, "measured here"))

    def of(
        folder: Path, *, recipe: Recipe = tiny, storage: str | None = None, name: str = "search", **changes: Any
    ) -> Any:
        settings = replace(SearchSettings(budget="200 runs", final_seeds=3), **changes)
        say = lambda sentence: None  # noqa: E731
        return open_search(recipe, folder, settings=settings, storage=storage, name=name, jobs=1, say=say)

    return of
