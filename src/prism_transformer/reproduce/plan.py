"""What a reproduction takes, before anything is spent: runs, tokens, device hours, memory, disk."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cost import short
from ..files import size_text
from ..model.head_schedule import HeadSchedule
from ..study.estimate import Estimate, about, check_disk, duration
from ..study.plan import RunKey
from ..study.planning import estimator
from ..wording import count
from .studies import PlannedStudy, finished, identity


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """One study's share of the plan."""

    study: PlannedStudy
    missing: tuple[RunKey, ...]
    """Not finished here nor in a neighbour, and not in an earlier study of this plan."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done at one scale."""

    scale: str
    studies: tuple[StudyPlan, ...]
    whole: Estimate
    """Of all the runs that are missing, as one study."""
    memory_bytes: int
    """of one process in training, at the most of its arms"""
    text: str
    """Where the text is."""
    text_problems: tuple[str, ...]
    budget_seconds: float | None

    @property
    def runs(self) -> int:
        """In all; one that two studies share counts once."""
        return len({identity(plan.study.run_recipe(run)) for plan in self.studies for run in plan.study.runs})

    @property
    def missing(self) -> int:
        return sum(len(plan.missing) for plan in self.studies)

    @property
    def device_seconds(self) -> float:
        """Of all missing runs, one after the other."""
        assert self.whole.speed is not None
        return self.whole.work / self.whole.speed

    @property
    def in_budget(self) -> int:
        """How many of the missing runs the budget covers."""
        if self.budget_seconds is None or not self.missing:
            return self.missing
        return min(self.missing, int(self.budget_seconds * self.whole.jobs / self.device_seconds * self.missing))

    def mapping(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "studies": [_study_mapping(plan) for plan in self.studies],
            "runs": self.runs,
            "missing": self.missing,
            "tokens": self.whole.tokens,
            "parameters": self.whole.parameters,
            "device_hours": self.device_seconds / 3600,
            "jobs": self.whole.jobs,
            "speed": self.whole.speed,
            "speed_source": self.whole.speed_source,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.whole.disk_bytes,
            "text": self.text,
            "text_problems": list(self.text_problems),
            "budget_seconds": self.budget_seconds,
            "in_budget": self.in_budget,
        }


def _study_mapping(plan: StudyPlan) -> dict[str, Any]:
    study = plan.study
    return {
        "targets": [target.name for target in study.targets],
        "folder": str(study.folder),
        "heads": {arm.name: str(arm.schedule) for arm in study.arms},
        "seeds": study.settings.seeds,
        "runs": len(study.runs),
        "missing": len(plan.missing),
    }


def make_plan(
    scale: str,
    studies: Sequence[PlannedStudy],
    *,
    vocab_size: int,
    text: str,
    text_problems: tuple[str, ...],
    budget_seconds: float | None,
) -> Plan:
    """Measure the device for some seconds, and count what is missing."""
    done = finished(studies[0].folder.parent)
    plans = []
    for study in studies:
        missing = [run for run in study.runs if identity(study.run_recipe(run)) not in done]
        done |= {identity(study.run_recipe(run)) for run in missing}
        plans.append(StudyPlan(study=study, missing=tuple(missing)))
    first = studies[0]
    recipe = first.recipe
    memory = [
        arm.recipe(recipe, seed=0, lr=recipe.optimizer.lr)
        .model.memory(
            vocab_size,
            micro_batch=recipe.training.micro_batch,
            activation_bytes=4,
            recompute=recipe.device.recompute,
        )
        .total
        for study in studies
        for arm in study.arms
    ]
    one = estimator(first.arms, vocab_size=vocab_size)(recipe, first.settings)
    return Plan(
        scale=scale,
        studies=tuple(plans),
        whole=one.of_runs(sum(len(plan.missing) for plan in plans)),
        memory_bytes=max(memory),
        text=text,
        text_problems=text_problems,
        budget_seconds=budget_seconds,
    )


def plan_lines(plan: Plan, out: Path) -> list[str]:
    """The plan in words, in 80 columns."""
    whole, lines = plan.whole, []
    for each in plan.studies:
        study = each.study
        names = " and ".join(target.name for target in study.targets)
        done = len(study.runs) - len(each.missing)
        known = f", {done} of them finished or shared" if done else ""
        seeds = count(study.settings.seeds, "seed")
        lines.append(f"{names}: {count(len(study.runs), 'run')}, {count(len(study.arms), 'arm')} x {seeds}{known}")
        lines += [f"  {arm.name:{_width(study)}}  {arm.schedule}" for arm in study.arms]
    lines += ["", f"scale: {plan.scale}, {short(whole.parameters)} parameters, heads of {_head_dims(plan)} dimensions"]
    lines.append(
        f"missing: {plan.missing} of {count(plan.runs, 'run')}, {whole.tokens_per_run:,} tokens each, "
        f"{whole.tokens:,} in all"
    )
    assert whole.speed is not None
    lines.append(
        f"time: {about(whole.speed_source)} {_hours(plan.device_seconds)} of one device, at {whole.speed:,.0f} "
        f"tokens/s a process, {whole.speed_source}; {whole.jobs} side by side here"
    )
    lines.append(f"memory: about {size_text(plan.memory_bytes)} a process, counted in float32")
    lines.append(f"disk: {size_text(whole.disk_bytes)} for checkpoints at the most")
    if warning := check_disk(whole, out):
        lines.append(warning)
    if plan.budget_seconds is not None:
        lines.append(
            f"budget: {duration(plan.budget_seconds)} cover about {plan.in_budget} of the {plan.missing} runs; "
            f"the same command goes on with the others"
        )
    lines.append(f"text: {plan.text}")
    return [wrapped for line in lines for wrapped in textwrap.wrap(line, 80, subsequent_indent="  ") or [""]]


def _width(study: PlannedStudy) -> int:
    return max(len(arm.name) for arm in study.arms)


def _head_dims(plan: Plan) -> str:
    schedules: list[HeadSchedule] = [arm.schedule for each in plan.studies for arm in each.study.arms]
    dims = sorted({dim for schedule in schedules for dim in schedule.head_dims})
    return ", ".join(map(str, dims))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} hours" if seconds >= 2 * 3600 else duration(seconds)
