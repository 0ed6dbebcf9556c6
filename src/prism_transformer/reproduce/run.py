"""From targets to rows beside the paper: train what is missing, measure, and write it into each study's report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_json
from ..study.attention import measure_study, read_attention, write_attention
from ..study.compare import conclude, open_study
from ..study.folder import Study
from ..study.report import REPRODUCTION
from ..study.results import read_results
from ..study.runner import Progress, run_study
from ..study.zero_shot import label, read_zero_shot
from ..wording import count
from .scoring import computation, score_study
from .sections import section
from .studies import PlannedStudy, take_over
from .targets import REHEARSAL

SEQUENCES = 32
"""windows in which attention distance is measured"""
REHEARSAL_ITEMS = 5
"""of each task that a rehearsal scores"""


class _OutOfTime(Exception):  # noqa: N818 - no error: the budget is spent, and every run is saved
    """The budget ended the training of a study."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Whom to tell how far it is."""

    say: Callable[[str], None] = print
    begin_study: Callable[[Study], None] = lambda study: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    begin_model: Callable[[str], None] = lambda name: None
    on_items: Callable[[int, int], None] = lambda done, total: None


def reproduce(
    scale: str,
    studies: Sequence[PlannedStudy],
    *,
    eval_data: Path | None,
    budget_seconds: float | None,
    watch: Watch | None = None,
) -> list[dict[str, Any]]:
    """Train what is missing of every study, measure it, and return its sections: see sections.section.

    Raises:
        InputError: settings, text, device or folders do not fit.
        RunError: a disk is full.
        Stopped: SIGINT, SIGTERM or SIGHUP; what is finished is kept, and the same call goes on.
    """
    watch = watch or Watch()
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    found: list[dict[str, Any]] = []
    for planned in studies:
        if _is_over(deadline):
            watch.say(f"{planned.folder} is left to the next call")
            continue
        study = open_study(
            planned.recipe,
            planned.folder,
            settings=planned.settings,
            name=f"{planned.name} of the paper, scale {scale}",
            say=watch.say,
        )
        if taken := take_over(study):
            watch.say(f"{count(taken, 'run')} of {study.folder} taken over from its neighbours")
        if _train(study, deadline, watch):
            _measure(study, planned, scale, eval_data, watch)
        found += write_sections(study, planned, scale)
        conclude(study)  # the report shows them now
    return found


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _train(study: Study, deadline: float | None, watch: Watch) -> bool:
    """Train until the study is finished or the time is up, and judge what there is; whether it is finished."""
    watch.begin_study(study)
    is_finished = True

    def on_progress(progress: Progress) -> None:
        watch.on_progress(progress)
        if _is_over(deadline) and not progress.is_complete:
            raise _OutOfTime

    try:
        run_study(study, on_progress=on_progress, say=watch.say)
    except _OutOfTime:
        is_finished = False
        left = sum(study.status(run) == "pending" for run in study.runs)
        watch.say(
            f"the budget is spent: {left} of {len(study.runs)} runs of {study.folder} are left, and saved where they "
            f"are; the same command goes on"
        )
    conclude(study)
    return is_finished


def _measure(study: Study, planned: PlannedStudy, scale: str, eval_data: Path | None, watch: Watch) -> None:
    """Zero-shot scores and attention distance, where a target wants them and two arms have a run to measure."""
    done = {run.arm for run in study.runs if study.status(run) == "done"}
    if len(done) < 2:
        return
    from ..training.device import torch_settings_kept

    names = {target.name for target in planned.targets}
    device = planned.recipe.device
    with torch_settings_kept():
        how = computation(device, watch.on_items)
        if "table2" in names:
            score_study(study, how, folder=eval_data, limit=_items(scale), say=watch.say, begin=watch.begin_model)
        if "attention" in names:
            _measure_attention(study, how.device, watch)


def _items(scale: str) -> int | None:
    """Of each task; None: all."""
    return REHEARSAL_ITEMS if scale == REHEARSAL else None


def _measure_attention(study: Study, device: Any, watch: Watch) -> None:
    found = measure_study(
        study,
        sequences=SEQUENCES,
        context=None,
        documents="packed",
        device=device,
        begin=watch.begin_model,
        on_progress=watch.on_items,
    )
    write_attention(study.folder, found)


def write_sections(study: Study, planned: PlannedStudy, scale: str) -> list[dict[str, Any]]:
    """Set what the study has beside the paper, and keep it in the study's folder."""
    results = read_results(study.folder)
    sections = [
        section(
            target.name,
            scale,
            results,
            zero_shot=read_zero_shot(study.folder) or {},
            zero_shot_label=label(_items(scale)),
            attention=read_attention(study.folder),
        )
        for target in planned.targets
    ]
    write_json(study.folder / REPRODUCTION, {"sections": sections})
    return sections
