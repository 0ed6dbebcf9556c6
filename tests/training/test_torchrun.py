"""`torchrun -m prism_transformer train`: stopped by a scheduler, a worker killed, restarted by the agent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prism_transformer.settings import to_yaml
from prism_transformer.training.recipe import with_training
from prism_transformer.training.state import RunFolder

from . import ranks
from .runs import assert_same_run, records

TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "--monitor-interval=0.2",
)


def launch(recipe: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    train = ("-m", "prism_transformer", "train", "--recipe", str(recipe), "--out", str(out))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as file:
        return subprocess.Popen([*TORCHRUN, "--max-restarts=2", *train], stdout=file, stderr=file, env=environment)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    while not condition():
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)


def at_step(out: Path, step: int) -> Callable[[], bool]:
    return lambda: (out / "metrics.jsonl").exists() and any(line["step"] >= step for line in records(out))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX processes")
def test_stopped_by_the_scheduler_then_a_worker_killed_it_ends_as_the_unbroken_run(recipe, corpus, tmp_path):
    """160 steps, a checkpoint each 20. The scheduler's SIGTERM reaches agent and workers, as it does under Slurm."""
    recipe = replace(recipe, data=replace(recipe.data, paths=(str(corpus.folder),), tokenizer="bytes"))
    recipe = with_training(recipe, tokens=160 * 64, log_every=1, evaluations=2, keep_every=20)
    (unbroken,), _ = ranks.run_ranks(2, ranks.trained, [(recipe, tmp_path / "unbroken", corpus.folder)])
    assert unbroken["end"] == ["finished", ""]
    file, out, log = tmp_path / "recipe.yaml", tmp_path / "run", tmp_path / "log"
    file.write_text(to_yaml(recipe))

    agent = launch(file, out, log)
    wait_for(at_step(out, 30), agent, log)
    worker = int((out / ".lock-owner").read_text().split()[1])
    for process in (worker, agent.pid):
        os.kill(process, signal.SIGTERM)
    assert agent.wait() != 0
    assert log.read_text().count("saved; the same command goes on") == 1  # rank 0 tells it for both
    stopped = records(out)[-1]["step"]
    assert RunFolder(out).latest().name == f"step-{stopped:06d}"

    agent = launch(file, out, log)
    wait_for(at_step(out, stopped + 30), agent, log)
    os.kill(int((out / ".lock-owner").read_text().split()[1]), signal.SIGKILL)
    assert agent.wait() == 0, log.read_text()
    told = log.read_text()
    assert f"going on from {out / 'checkpoints' / f'step-{stopped:06d}'}" in told
    assert told.count("going on from ") == 2
    assert "taken over from process" in told and "which has ended" in told
    assert told.count("validation loss") == 3  # one on the way, the last one, and the result
    assert_same_run(out, tmp_path / "unbroken")
