"""What the tests of several rooms share: a small text, and a finished study of tiny models."""

import os
import random
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: each of pytest's workers has a core

NOUNS = ["cat", "dog", "bird", "fish", "horse", "child"]
VERBS = ["sees", "likes", "finds", "helps"]
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that none is alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 words that follow each other by chance, on one line."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(draw.choice(WORDS) for _ in range(800)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The arms uniform and prism with two seeds each: 4 layers of 32, 12 steps; trained in this process."""
    from prism_transformer.data import DataSettings
    from prism_transformer.study.compare import conclude, open_study
    from prism_transformer.study.plan import StudySettings
    from prism_transformer.training.loop import train
    from prism_transformer.training.recipe import (
        DeviceSettings,
        ModelSettings,
        OptimizerSettings,
        Recipe,
        TrainingSettings,
    )

    folder = tmp_path_factory.mktemp("trained")
    draw = random.Random(0)
    text = folder / "text.jsonl"
    lines = [
        '{"text": "'
        + " ".join(f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)}." for _ in range(8))
        + '"}\n'
        for _ in range(150)
    ]
    text.write_text("".join(lines), encoding="utf-8")
    recipe = Recipe(
        model=ModelSettings(layers=4, d_model=32, heads=4, context=32, vocab_multiple=64),
        data=DataSettings(paths=(str(text),), vocab_size=300, validation_share=0.2),
        optimizer=OptimizerSettings(lr=1e-2),
        training=TrainingSettings(tokens=12 * 256, tokens_per_step=256, micro_batch=8, evaluations=3),
        device=DeviceSettings(device="cpu", dtype="float32", threads=1),
    )
    study = open_study(
        recipe, folder / "study", settings=StudySettings(seeds=2, jobs=1), name="small", say=lambda sentence: None
    )
    for run in study.runs:
        train(study.run_recipe(run), study.run_folder(run), corpus=study.open_corpus(), say=lambda sentence: None)
    conclude(study)
    return study.folder
