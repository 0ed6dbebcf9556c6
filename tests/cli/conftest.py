"""A recipe file that a CPU trains in a second."""

import random
from pathlib import Path

import pytest

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
RECIPE = """
model: {{layers: 2, d_model: 16, heads: 4, context: 16}}
data: {{paths: [{text}], tokenizer: bytes}}
optimizer: {{lr: 3.0e-3}}
training: {{tokens: 640, tokens_per_step: 64, micro_batch: 4, evaluations: 2, evaluation_tokens: 100}}
device: {{device: cpu, dtype: float32, threads: 1}}
study: {{arms: [uniform, prism], seeds: 2, jobs: 1}}
"""


@pytest.fixture(scope="session")
def tiny_yaml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a recipe of 10 steps of 64 tokens, two arms and two seeds."""
    folder = tmp_path_factory.mktemp("recipe")
    draw = random.Random(0)
    (folder / "text.txt").write_text(" ".join(draw.choice(WORDS) for _ in range(800)), encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(text=folder / "text.txt"), encoding="utf-8")
    return str(path)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty; a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path
