"""One process that works through a study: `python -m prism_transformer.study.worker STUDY [PARENT]`.

It takes the next run that nobody has finished or holds, until none is left. What another process holds it waits for,
since that process may die; it ends early where the process PARENT has. Exit codes are the command line's.
"""

import os
import sys
import time
from collections.abc import Callable

from ..data import Corpus
from ..errors import DivergedError
from ..training.loop import train
from ..training.run_lock import InUseError
from ..training.text import data_sentences
from .folder import Study
from .plan import RunKey
from .workers import run_as_worker

WAIT_SECONDS = 1.0


def work(study: Study, *, parent: int | None = None, say: Callable[[str], None] = print) -> int:
    """Train every run of `study` that is left; returns how many this process trained. Ends early when `parent` died."""
    corpus = study.open_corpus()
    trained = 0
    while parent is None or os.getppid() == parent:
        left = [run for run in study.runs if study.status(run) == "pending"]
        if not left:
            break
        if any(_train(study, run, corpus, say) for run in left):  # the first that is free; then look again
            trained += 1
        else:
            time.sleep(WAIT_SECONDS)
    return trained


def _train(study: Study, run: RunKey, corpus: Corpus, say: Callable[[str], None]) -> bool:
    """Train one run to its end, also a diverged one; False where another process has it."""
    recipe = study.run_recipe(run)
    told = data_sentences(study.file.recipe, corpus) + data_sentences(recipe, corpus)  # by `open_study`, once
    try:
        train(recipe, study.run_folder(run), corpus=corpus, say=lambda text: None if text in told else say(text))
    except InUseError:
        return False
    except DivergedError as error:
        say(f"{run.arm}, seed {run.seed}: {error}")
    return True


def main(argv: list[str]) -> int:
    return run_as_worker(argv, lambda folder, parent, say: work(Study.open(folder), parent=parent, say=say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
