"""The pilot for one large GPU, with a tiny model on the CPU: it is ready where there is one."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.data import DataSettings, prepare
from prism_transformer.study.estimate import Speed
from prism_transformer.study.folder import Study
from prism_transformer.study.runner import Progress, ProgressReader
from prism_transformer.study.worker import work

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import gpu_pilot

RECIPE = """
model: {layers: 4, d_model: 48, heads: 12, context: 16}
optimizer: {lr: 3.0e-3}
training: {tokens: 640, evaluations: 3, evaluation_tokens: 64}
device: {dtype: float32, threads: 1}
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    (folder / "text.txt").write_text(" ".join(f"word{i * i % 31}" for i in range(1500)))
    text = DataSettings(paths=(str(folder / "text.txt"),), tokenizer="bytes", validation_share=0.1)
    prepare(text, folder / "corpus", say=lambda sentence: None)
    (folder / "tiny.yaml").write_text(RECIPE)
    return folder


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_study(study: Study, *, on_progress: Any, **_: Any) -> Progress:
        on_progress(ProgressReader(study).read())
        work(study, say=lambda sentence: None)
        return ProgressReader(study).read()

    monkeypatch.setattr(gpu_pilot, "START", time.monotonic())  # which is when the script began
    monkeypatch.setattr(gpu_pilot.runner, "run_study", run_study)
    monkeypatch.setattr(gpu_pilot.speed, "training_speed", lambda recipe, size: Speed(30.0, "measured here"))


def arguments(shards: Path, out: Path, minutes: str = "4") -> list[str]:
    sizes = ["--tokens-per-step", "64", "--micro-batch", "4", "--device", "cpu", "--minutes", minutes]
    return [str(shards / "corpus"), "--out", str(out), "--recipe", str(shards / "tiny.yaml"), *sizes]


def test_it_trains_what_fits_and_writes_curves_and_paired_differences(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 tokens/s shared by three; .75 x (240 - 90) s; evaluations of a split of about 1,000 tokens at a third."""
    assert gpu_pilot.main(arguments(shards, tmp_path / "pilot")) == 0
    study = Study.open(tmp_path / "pilot")
    validation = len(study.open_corpus().split("validation"))
    seconds = 0.75 * (240 - 90) - (2 * 64 + validation) / 3 / 10
    assert study.file.recipe.steps in (int(seconds * 10 // 64), int((seconds - 5) * 10 // 64))
    found = json.loads((tmp_path / "pilot" / "pilot.json").read_text())["losses"]
    assert list(found) == ["uniform", "prism", "uniform-6"]
    last = str(study.file.recipe.steps)
    assert len(found["prism"]) == 3 and all(last in of_arm for of_arm in found.values())
    page = (tmp_path / "pilot" / "pilot.md").read_text()
    loss = {arm: of_arm[last][1] for arm, of_arm in found.items()}
    assert f"{loss['prism'] - loss['uniform']:+.4f} | {loss['uniform-6'] - loss['uniform']:+.4f}" in page
    assert page in capsys.readouterr().out
    assert all((tmp_path / "pilot" / f"pilot.{kind}").stat().st_size > 1000 for kind in ("svg", "png"))
    before = (tmp_path / "pilot" / "study.yaml").read_bytes()
    assert gpu_pilot.main(arguments(shards, tmp_path / "pilot")) == 0, "finished: said again, nothing trained"
    assert (tmp_path / "pilot" / "study.yaml").read_bytes() == before


def test_time_that_is_too_short_is_said_before_anything_is_trained(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_pilot.main(arguments(shards, tmp_path / "pilot", minutes="1.3")) == 2
    assert "give more minutes" in capsys.readouterr().err
    assert not (tmp_path / "pilot").exists()


def test_no_gpu_is_said(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    given = [word if word != "cpu" else "cuda:7" for word in arguments(shards, tmp_path / "pilot")]
    assert gpu_pilot.main(given) == 2
