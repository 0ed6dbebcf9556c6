"""kill -9 at random moments of a run, in saves too: afterwards it is always loadable, and ends as if nothing had been.

    python tests/training/soak.py --moments 100

A process trains; it is killed after a random time; the newest checkpoint is verified; the next process goes on. Half
of the moments are drawn while a checkpoint is being written. At the end weights, moments and metrics are compared, bit
for bit, with those of a run that was left alone.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from prism_transformer.checkpoint import load_model
from prism_transformer.data import Corpus
from prism_transformer.files import read_json, verify
from prism_transformer.training.loop import train
from prism_transformer.training.recipe import Recipe, with_training
from prism_transformer.training.state import RunFolder


def soak(recipe: Recipe, out: Path, corpus: Corpus, *, moments: int, draw: random.Random, longest: float) -> int:
    """Kill the run `moments` times, or until it is finished; returns how often it was killed.

    `longest` is the time in seconds within which a moment lies, counted from the start of a process or of a save.
    """
    killed = 0
    for moment in range(moments):
        pid = start(recipe, out, corpus)
        if moment % 2:
            until(lambda: any((out / "checkpoints").glob(".step-*.tmp")), pid)
        time.sleep(longest * draw.random() * (0.1 if moment % 2 else 1.0))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert_loadable(out)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        killed += 1
    return killed


def start(recipe: Recipe, out: Path, corpus: Corpus) -> int:
    """A process that trains; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        train(recipe, out, corpus=corpus, say=lambda sentence: None)
        code = 0
    finally:
        os._exit(code)


def until(condition: Callable[[], bool], pid: int) -> None:
    """Wait for `condition`, or for the end of the process."""
    while not condition() and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.0005)


def assert_loadable(out: Path) -> None:
    """The newest checkpoint, if there is one yet, is whole and answers as it did."""
    latest = RunFolder(out).latest()
    if latest is not None:
        verify(latest, read_json(latest / "state.json")["sha256"])
        load_model(latest)


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.training.conftest import make_corpus
    from tests.training.runs import RECIPE, assert_same_run, records

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder))
        steps = 60 * options.moments
        recipe = with_training(RECIPE, tokens=64 * steps, save_minutes=0.002, log_every=7, evaluations=20)
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, lr=1e-3))
        began = time.monotonic()
        pid = start(recipe, Path(folder) / "alone", corpus)
        assert os.waitpid(pid, 0)[1] == 0
        longest = 3 * (time.monotonic() - began) / options.moments
        killed = soak(
            recipe,
            Path(folder) / "killed",
            corpus,
            moments=options.moments,
            draw=random.Random(options.seed),
            longest=longest,
        )
        train(recipe, Path(folder) / "killed", corpus=corpus, say=lambda sentence: None)
        assert_same_run(Path(folder) / "killed", Path(folder) / "alone")
        lines = len(records(Path(folder) / "killed"))
        print(
            f"killed {killed} times in {steps} steps; loadable after each; {lines} lines and all tensors are the same"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
