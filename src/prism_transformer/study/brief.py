"""A study in a few figures: what is done, what runs, when it ends. Read from its files, without judging anything."""

import statistics
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ..training.run_lock import is_held
from ..wording import count
from .estimate import duration
from .folder import Study, status_of
from .plan import RunKey


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run that a process has at the moment."""

    run: RunKey
    step: int
    steps: int
    loss: float | None
    tokens_per_second: float | None


@dataclass(frozen=True, kw_only=True)
class Brief:
    """How far a study is."""

    name: str
    runs: int
    done: int
    diverged: int
    running: tuple[Running, ...]
    remaining_seconds: float | None
    """Of training, at the speed of its own runs and as many side by side as now; None where it stands or is unknown."""

    @property
    def waiting(self) -> int:
        return self.runs - self.done - self.diverged - len(self.running)

    def mapping(self) -> dict[str, Any]:
        running = [
            {**each.run._asdict(), "step": each.step, "steps": each.steps, "loss": each.loss,
             "tokens_per_second": each.tokens_per_second}
            for each in self.running
        ]  # fmt: skip
        return {
            "name": self.name,
            "runs": self.runs,
            "done": self.done,
            "diverged": self.diverged,
            "running": running,
            "waiting": self.waiting,
            "remaining_seconds": self.remaining_seconds,
        }


def brief(study: Study) -> Brief:
    """Read how far every run is."""
    records = {run: study.records(run) for run in study.runs}
    statuses = {run: status_of(of_run) for run, of_run in records.items()}
    running = []
    for run, status in statuses.items():
        if status == "pending" and is_held(study.run_folder(run)):
            last = records[run][-1] if records[run] else {"step": 0}
            losses = [record for record in records[run] if "loss" in record]
            newest = losses[-1] if losses else {}
            running.append(
                Running(
                    run=run,
                    step=last["step"],
                    steps=study.run_recipe(run).steps,
                    loss=newest.get("loss"),
                    tokens_per_second=newest.get("tokens_per_second"),
                )
            )
    speeds = [r["tokens_per_second"] for of_run in records.values() for r in of_run if r.get("tokens_per_second")]
    left = sum(
        study.run_recipe(run).trained_tokens - (records[run][-1]["tokens"] if records[run] else 0)
        for run, status in statuses.items()
        if status == "pending"
    )
    is_known = running and speeds
    return Brief(
        name=study.title,
        runs=len(statuses),
        done=sum(status == "done" for status in statuses.values()),
        diverged=sum(status == "diverged" for status in statuses.values()),
        running=tuple(running),
        remaining_seconds=left / statistics.median(speeds) / len(running) if is_known else None,
    )


def brief_lines(found: Brief, folder: Path, now: datetime) -> list[str]:
    """The same in words."""
    over = f"{found.done} of {count(found.runs, 'run')} done"
    over += f", {found.diverged} diverged" if found.diverged else ""
    lines = [f"study {found.name}: {over}"]
    for each in found.running:
        speed = f", {each.tokens_per_second:,.0f} tokens/s" if each.tokens_per_second else ""
        loss = f", loss {each.loss:.4f}" if each.loss is not None else ""
        lines.append(f"  running: {each.run.arm} seed {each.run.seed}, step {each.step:,}/{each.steps:,}{loss}{speed}")
    if found.waiting:
        lines.append(f"  waiting: {count(found.waiting, 'run')}")
    if found.remaining_seconds is not None:
        end = now + timedelta(seconds=found.remaining_seconds)
        day = "" if end.date() == now.date() else f" on {end:%Y-%m-%d}"
        lines.append(
            f"  ends: in about {duration(found.remaining_seconds)}, at {end:%H:%M}{day}; evaluations not counted"
        )
    elif found.running:
        lines.append("  ends: not known before the first steps are measured")
    elif found.waiting:
        lines.append(f"  nothing runs: go on with prism compare --out {folder} and the settings that it began with")
    else:
        lines.append(f"  finished: see it with prism report {folder}")
    return lines
