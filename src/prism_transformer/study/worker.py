"""One process that works through a study: `python -m prism_transformer.study.worker STUDY`.

It takes the next run that nobody has finished or holds, until none is left. Exit codes are the command line's.
"""

import os
import sys
from pathlib import Path

from ..errors import InputError, RunError, Stopped
from ..training.loop import train
from ..training.state import InUseError
from .folder import Study


def work(study: Study, *, parent: int | None = None) -> int:
    """Train every run of `study` that is left; returns how many this process trained. Ends early when `parent` died."""
    corpus = study.open_corpus()
    trained = 0
    for run in study.runs:
        if parent is not None and os.getppid() != parent:
            break
        if study.status(run) != "pending":
            continue
        try:
            train(study.run_recipe(run), study.run_folder(run), corpus=corpus)
            trained += 1
        except InUseError:
            continue
        except RunError as error:
            if study.status(run) != "diverged":
                raise
            print(f"{run.arm}, seed {run.seed}: {error}", flush=True)
    return trained


def main(argv: list[str]) -> int:
    try:
        work(Study.open(Path(argv[0])), parent=os.getppid())
        return 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
