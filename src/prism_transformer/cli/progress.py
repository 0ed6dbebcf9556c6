"""Progress on a terminal: one live line, or plain lines where the output is no terminal."""

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..study.estimate import Estimate, describe, duration, time_sentence
from ..study.folder import Study
from ..study.planning import first_speed, plan_of
from ..study.runner import Progress as StudyProgress
from ..training.recipe import Recipe

if TYPE_CHECKING:
    from ..search.search import Search
    from ..search.search import State as SearchState


class _Live:
    """A bar over tokens with a text beside it; sentences go above it. All of it goes to stderr."""

    def __init__(self, total_tokens: int | None) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),  # paths and schedules are no markup
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID = self._bar.add_task("starting", total=total_tokens)

    def __enter__(self) -> Any:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False)

    def move(self, description: str, tokens: int) -> None:
        self._bar.update(self._task, description=description, completed=tokens)


class RunProgress(_Live):
    """The progress of one run."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe.trained_tokens)
        self._steps = recipe.steps
        self._loss = ""

    def show(self, record: dict[str, Any]) -> None:
        """Take one line of metrics."""
        step = f"step {record['step']:,}/{self._steps:,}"
        if "val_loss" in record:
            self.say(f"{step}: validation loss {record['val_loss']:.4f}")
            return
        if "loss" in record:
            speed = f", {record['tokens_per_second']:,.0f} tokens/s" if record["tokens_per_second"] else ""
            self._loss = f"loss {record['loss']:.4f}{speed}"
            if record["step"] == 1:
                self.say(f"{step}: {self._loss}")
        self.move(f"{step} {self._loss}", record["tokens"])


class CompareProgress(_Live):
    """The progress of a study: a line for each run that ends, and one live line for all of them."""

    def __init__(self) -> None:
        super().__init__(None)
        self._told: set[Any] = set()
        self._started = time.monotonic()
        self._has_loss: bool | None = None
        self._begun_at = self._left = 0
        self._study: Study | None = None
        self._plan: Estimate | None = None

    def begin(self, study: Study) -> None:
        """The text is prepared and the runs are known: say the plan of what is left to train."""
        self._study, self._plan = study, plan_of(study, study.open_corpus())
        self._bar.update(self._task, total=self._plan.tokens)
        self._told = {run for run in study.runs if study.status(run) != "pending"}
        self._left = len(study.runs) - len(self._told)
        if self._left:
            for line in describe(self._plan):
                self.say(line)
            if calibrating := sum(arm.role.startswith("calibration") for arm in study.arms):
                self.say(f"{calibrating} of the arms calibrate the study; --no-calibrate leaves them out")

    def _say_time(self) -> None:
        """The first steps of training are the measurement."""
        if self._study and self._plan and self._plan.speed is None and (speed := first_speed(self._study)):
            self._plan = self._plan.at(speed)
            self.say(time_sentence(self._plan.of_runs(self._left)) or "")

    def _time_left(self, progress: StudyProgress) -> str:
        """By what this command has trained so far; nothing before it is known, or at the end."""
        done = sum(progress.tokens.values())
        if self._plan is None or progress.is_complete or done <= self._begun_at:
            return ""
        total = self._plan.tokens
        seconds = (time.monotonic() - self._started) * (total - done) / (done - self._begun_at)
        return f"; about {duration(seconds)} left"

    def show(self, progress: StudyProgress) -> None:
        """Take how far every run is."""
        self._say_time()
        runs = len(progress.statuses)
        running = [run for run in progress.last if progress.statuses[run] == "pending"]
        losses = [record["loss"] for run in running if "loss" in (record := progress.last[run])]
        if self._has_loss is None:  # what is there at once is of runs that go on
            self._has_loss, self._begun_at = bool(losses), sum(progress.tokens.values())
        elif losses and not self._has_loss:
            self._has_loss = True
            self.say(f"training loss {losses[0]:.4f} after {time.monotonic() - self._started:.0f} s")
        for run, status in progress.statuses.items():
            if status == "pending" or run in self._told:
                continue
            self._told.add(run)
            outcome = f"validation loss {progress.last[run]['val_loss']:.4f}" if status == "done" else "diverged"
            self.say(f"[{len(self._told)}/{runs}] seed {run.seed} {run.arm}: {outcome}{self._time_left(progress)}")
        names = ", ".join(f"{run.arm} {run.seed}" for run in running[:2])
        self.move(f"{progress.finished}/{runs} runs; {names}", sum(progress.tokens.values()))


class ScoreProgress(_Live):
    """The progress of scoring: which model, and how much of its texts."""

    def __init__(self) -> None:
        super().__init__(None)
        self._name = ""

    def begin(self, name: str) -> None:
        """A model is being loaded."""
        self._name = name
        self._bar.update(self._task, description=name, completed=0, total=None)

    def show(self, done: int, total: int) -> None:
        self._bar.update(self._task, description=f"{self._name}: {done:,} of {total:,}", completed=done, total=total)


class SearchProgress(_Live):
    """The progress of a search: a line for each run and each round that ends."""

    def __init__(self) -> None:
        super().__init__(None)
        self._told: set[Any] = set()
        self._rounds = 0

    def begin(self, search: "Search") -> None:
        """The records are open: what had ended before is not told again."""
        state = search.state()
        self._told = {run for run, each in state.attempts.items() if each.state != "running"}
        self._rounds = len(state.judged)
        self._budget = search.ladder.budget

    def show(self, state: "SearchState") -> None:
        """Take where the search stands."""
        for run, attempt in state.attempts.items():
            if attempt.state == "running" or run in self._told:
                continue
            self._told.add(run)
            loss = "diverged" if attempt.loss is None else f"{_SPLIT[run.stage]} loss {attempt.loss:.4f}"
            self.say(f"{run.stage}, {run.tokens:,} tokens, seed {run.seed}, {run.schedule}: {loss}")
        for number, judged in enumerate(state.judged[self._rounds :], start=self._rounds + 1):
            left = len(judged.standings) - len(judged.dropped)
            takes = f"; to be dropped takes about {judged.drops_from:.3f} nats behind it" if judged.drops_from else ""
            self.say(f"round {number}: {len(judged.dropped)} dropped, {left} left, led by {judged.leader}{takes}")
            if state.current.stage == "final" and number == len(state.judged):
                current = state.current
                self.say(
                    f"no further round: the final comparison of {', '.join(current.schedules)} follows, "
                    f"{len(current.seeds)} fresh seeds of {current.tokens:,} tokens"
                )
        self._rounds = len(state.judged)
        runs = state.current.runs
        ended = sum(run in self._told for run in runs)
        name = f"round {len(state.rounds)}" if state.current.stage == "search" else "final comparison"
        self._bar.update(self._task, total=len(runs))
        self.move(
            f"{name}: {ended}/{len(runs)} runs; {self._budget.words(state.spent)} of {self._budget.words()}", ended
        )


_SPLIT = {"search": "validation", "final": "test"}
