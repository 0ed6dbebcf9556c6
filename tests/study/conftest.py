"""A study that a CPU trains in seconds, shared by the tests that need one that is finished."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prism_transformer.data import DataSettings
from prism_transformer.study.folder import Study
from prism_transformer.study.plan import StudySettings
from prism_transformer.training.recipe import (
    DeviceSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    TrainingSettings,
)


@pytest.fixture(scope="session")
def tiny(text: Path) -> Recipe:
    """10 steps of 64 tokens."""
    return Recipe(
        model=ModelSettings(layers=2, d_model=16, heads=4, context=16),
        data=DataSettings(paths=(str(text),), tokenizer="bytes"),
        optimizer=OptimizerSettings(lr=3e-3),
        training=TrainingSettings(tokens=640, tokens_per_step=64, micro_batch=4, evaluations=2, evaluation_tokens=100),
        device=DeviceSettings(device="cpu", dtype="float32", threads=1),
    )


Begin = Callable[..., Study]


@pytest.fixture(scope="session")
def begin(tiny: Recipe) -> Begin:
    """begin(folder, seeds=2, recipe=tiny, …): a study with its text and study.yaml, before its first run."""

    from prism_transformer.study.compare import open_study  # matplotlib and torch: only for tests that want a study

    def of(folder: Path, *, recipe: Recipe = tiny, **settings: object) -> Study:
        whole = replace(StudySettings(seeds=2), **settings)
        return open_study(recipe, folder, settings=whole, name="tiny", say=lambda sentence: None)

    return of


@pytest.fixture(scope="session")
def finished_once(begin: Begin, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """uniform and prism with 2 seeds. Do not write into it."""
    from prism_transformer.study.worker import work

    study = begin(tmp_path_factory.mktemp("finished") / "study")
    work(study, say=lambda sentence: None)
    return study


@pytest.fixture
def finished(finished_once: Study, tmp_path: Path) -> Study:
    """The same, a copy to be written into."""
    shutil.copytree(finished_once.folder, tmp_path / "finished")
    return Study.open(tmp_path / "finished")
