"""One process that works through a search: `python -m prism_transformer.search.worker SEARCH [PARENT]`.

It claims the next run that nobody has begun, trains it, and notes its loss; when a round has ended it judges it, unless
another worker has. It ends with the search, and early where the process PARENT has. Exit codes are the command line's.
"""

import math
import os
import shutil
import sys
import time
from collections.abc import Callable

from ..data import Corpus
from ..errors import DivergedError
from ..study.workers import run_as_worker
from .ladder import RunId
from .queue import Queue
from .search import Search

WAIT_SECONDS = 1.0

Train = Callable[[Search, RunId, Corpus, Callable[[str], None]], float | None]
"""Trains one run and returns its loss in nats per token; None where it diverged. Raises BusyError."""


class BusyError(Exception):
    """Another process still has the folder of a run: it was killed, and not all of its locks are free yet."""


def work(
    search: Search,
    *,
    train: Train,
    parent: int | None = None,
    say: Callable[[str], None] = print,
    wait: float = WAIT_SECONDS,
) -> int:
    """Work through `search` to its end; returns how many runs this process trained. Ends early when `parent` died."""
    corpus = search.open_corpus()
    trained = 0
    with Queue(search.records, search.folder) as queue:
        while parent is None or os.getppid() == parent:
            state = search.state()
            if state.is_finished:
                break
            if state.is_over:
                search.decide(state)
            elif state.left:
                trained += _take(search, queue, state.left[0], corpus, train, say)
            elif not queue.take_up_lost(list(state.all_attempts)):
                time.sleep(wait)
    return trained


def _take(search: Search, queue: Queue, run: RunId, corpus: Corpus, train: Train, say: Callable[[str], None]) -> bool:
    """Claim a run and train it; False where another worker has it."""
    number = queue.claim(run)
    if number is None:
        return False
    try:
        with queue.alive(number):
            loss = train(search, run, corpus, say)
    except BusyError:
        search.records.lose(number)
        time.sleep(WAIT_SECONDS)
        return False
    if not search.records.finish(number, loss):
        say(f"warning: {run.schedule}, seed {run.seed}: others took this run for lost, so its result does not count")
        return False
    return True


def train_run(search: Search, run: RunId, corpus: Corpus, say: Callable[[str], None]) -> float | None:
    """Train a run in its folder, or go on with it there: its validation loss, or of the final comparison its test loss.

    Nothing else reads the test split, and only once nothing is left to choose.
    """
    from ..checkpoint import CHECKPOINTS  # imports torch, as the next two
    from ..training.loop import train
    from ..training.run_lock import InUseError

    def filtered(sentence: str) -> None:
        if sentence.startswith(("warning", "going on")):
            say(f"{run.schedule}, seed {run.seed}: {sentence}")

    recipe, folder = search.run_recipe(run), search.run_folder(run)
    try:
        record = train(recipe, folder, corpus=corpus, say=filtered)
        if run.stage == "final":
            return _test_loss(search, run, corpus)
        # Its loss is all that counts, and the checkpoints of hundreds of runs would fill the disk.
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return float(record["val_loss"])
    except InUseError as error:
        raise BusyError from error
    except DivergedError as error:
        say(f"{run.schedule}, seed {run.seed}: {error}")
        return None


def _test_loss(search: Search, run: RunId, corpus: Corpus) -> float:
    """Nats per token of a trained run on the test split."""
    from torch import nn

    from ..checkpoint import latest_checkpoint, load_model
    from ..evaluation.loss import text_loss, token_losses
    from ..training.device import choose_device

    checkpoint = latest_checkpoint(search.run_folder(run))
    assert checkpoint is not None, "a finished run has a checkpoint"
    recipe, device = search.run_recipe(run), choose_device(search.plan.recipe.device)
    model = load_model(checkpoint)
    nn.Module.to(model, device.device)
    stream = corpus.split("test")
    losses = token_losses(
        model,
        stream,
        context=recipe.model.context,
        batch_size=recipe.training.micro_batch,
        autocast=device.autocast(),
    )
    loss = text_loss(losses, stream).nats_per_token
    if not math.isfinite(loss):
        raise DivergedError(f"the loss on the test split is {loss}")
    return loss


def main(argv: list[str]) -> int:
    return run_as_worker(
        argv, lambda folder, parent, say: work(Search.open(folder), train=train_run, parent=parent, say=say)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
