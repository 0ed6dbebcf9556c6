"""Progress on a terminal: one live line, or plain lines where the output is no terminal."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..study.runner import Progress as StudyProgress
from ..training.recipe import Recipe


class _Live:
    """A bar over tokens with a text beside it; sentences go above it."""

    def __init__(self, total_tokens: int | None, *, quiet: bool) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=quiet)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task: TaskID = self._bar.add_task("starting", total=total_tokens)

    def __enter__(self) -> Any:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def is_live(self) -> bool:
        return not self._bar.disable

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False)

    def move(self, description: str, tokens: int) -> None:
        self._bar.update(self._task, description=description, completed=tokens)


class RunProgress(_Live):
    """The progress of one run."""

    def __init__(self, recipe: Recipe, *, quiet: bool) -> None:
        super().__init__(recipe.trained_tokens, quiet=quiet)
        self._steps = recipe.steps
        self._loss = self._speed = ""

    def show(self, record: dict[str, Any]) -> None:
        """Take one line of metrics."""
        if "val_loss" in record:
            self.say(f"step {record['step']:,}: validation loss {record['val_loss']:.4f}")
            return
        if "loss" in record:
            self._loss = f"loss {record['loss']:.4f}"
            self._speed = f"{record['tokens_per_second']:,.0f} tokens/s" if record["tokens_per_second"] else ""
            if record["step"] == 1:
                self.say(f"step {record['step']:,} of {self._steps:,}: {self._loss}, {self._speed}")
        self.move(f"step {record['step']:,}/{self._steps:,} {self._loss} {self._speed}", record["tokens"])


class CompareProgress(_Live):
    """The progress of a study: a line for each run that ends, and one live line for all of them."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(None, quiet=quiet)
        self._runs = 0
        self._told: set[Any] = set()
        self._started = time.monotonic()
        self._first_loss = False

    def begin(self, total_tokens: int, runs: int) -> None:
        """The text is prepared and the runs are known."""
        self._bar.update(self._task, total=total_tokens)
        self._runs = runs

    def show(self, progress: StudyProgress) -> None:
        losses = [record["loss"] for record in progress.last.values() if "loss" in record]
        if losses and not self._first_loss:
            self._first_loss = True
            self.say(f"first training loss {losses[0]:.4f} after {time.monotonic() - self._started:.0f} s")
        for run, status in progress.statuses.items():
            if status == "pending" or run in self._told:
                continue
            self._told.add(run)
            record = progress.last[run]
            outcome = f"validation loss {record['val_loss']:.4f}" if status == "done" else "diverged"
            self.say(f"[{progress.finished}/{self._runs}] seed {run.seed} {run.arm}: {outcome}")
        running = [run for run in progress.last if progress.statuses[run] == "pending"]
        names = ", ".join(f"{run.arm} {run.seed}" for run in running[:2])
        self.move(f"{progress.finished}/{self._runs} runs; {names}", sum(progress.tokens.values()))
