"""Made-up trainings, and a worker process that does them: `python made_up.py FOLDER LOG [SECONDS]`.

The process notes the begin and the end of every run in LOG, one line each, and a run takes SECONDS.
"""

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from prism_transformer.search.search import Search
from prism_transformer.search.worker import work


def made_up_loss(search: Any, run: Any, corpus: Any = None, say: Any = None) -> float:
    """A loss that wide heads lower, with noise that is a function of the run: the same in every process."""
    draw = random.Random(f"{run.stage} {run.schedule} {run.tokens} {run.seed}")
    shared = random.Random(f"{run.stage} {run.seed}").gauss(0, 0.01)
    heads = search.schedule(run.schedule).heads
    return 4.0 + 0.02 * sum(heads) / len(heads) + shared + draw.gauss(0, 0.001)


def main(folder: str, log: str, seconds: str = "0") -> None:
    def note(what: str, run: Any) -> None:
        with Path(log).open("a") as file:
            file.write(f"{what} {os.getpid()} {run.stage}/{run.schedule}/{run.tokens}/{run.seed}\n")

    def train(search: Any, run: Any, corpus: Any, say: Any) -> float:
        note("begin", run)
        time.sleep(float(seconds))
        note("end", run)
        return made_up_loss(search, run)

    work(Search.open(Path(folder)), train=train, wait=0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
