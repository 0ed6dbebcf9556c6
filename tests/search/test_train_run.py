"""A real run of a search: where its loss is from, and that it goes on where a killed worker left it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from prism_transformer.checkpoint import latest_checkpoint, load_model
from prism_transformer.data.corpus import Corpus
from prism_transformer.search.ladder import RunId
from prism_transformer.search.worker import train_run


def test_only_the_final_comparison_reads_the_test_split(
    begin: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its loss is the mean over the split, each window of 16 tokens by itself."""
    search = begin(tmp_path / "s")
    corpus = search.open_corpus()
    read: list[str] = []
    split = Corpus.split
    monkeypatch.setattr(Corpus, "split", lambda self, name: read.append(name) or split(self, name))
    told: list[str] = []
    chosen = train_run(search, RunId("search", "2x2,4x1", 128, 0), corpus, told.append)
    assert set(read) == {"train", "validation"}
    folder = search.run_folder(RunId("search", "2x2,4x1", 128, 0))
    assert (folder / "metrics.jsonl").exists() and not (folder / "checkpoints").exists()
    assert train_run(search, RunId("search", "2x2,4x1", 128, 0), corpus, told.append) == chosen
    run = RunId("final", "2x2,4x1", 128, 1_000_000)
    loss = train_run(search, run, corpus, told.append)
    assert "test" in read and loss != chosen
    checkpoint = latest_checkpoint(search.run_folder(run))
    assert checkpoint is not None
    model = load_model(checkpoint)
    assert tuple(model.config.head_schedule.heads) == (2, 2, 4)
    ids = torch.from_numpy(split(corpus, "test").read(0, len(split(corpus, "test"))))
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 16):
            window = ids[start : start + 17]
            nats += F.cross_entropy(model(window[None, :-1]).logits[0], window[1:], reduction="sum").item()
    assert loss == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert train_run(search, run, corpus, told.append) == loss  # taken up again: finished, and the same


def test_schedules_of_one_seed_begin_alike_and_read_the_same(begin: Callable[..., Any], tmp_path: Path) -> None:
    search = begin(tmp_path / "s")
    recipes = [search.run_recipe(RunId("search", name, 128, 7)).training for name in ("uniform", "1x2,4x1")]
    assert recipes[0] == recipes[1] and recipes[0].seed == 7 and recipes[0].tokens == 128
    assert search.run_folder(RunId("search", "uniform", 128, 7)).relative_to(search.folder) == Path(
        "runs/uniform/tokens-128/seed-7"
    )
