"""The study folder: what was fixed before the first run, and what its runs have shown so far.

    study.yaml  data/  runs/ARM/seed-K/  results.json  report.html

The folder is the queue: every process that shares it takes the next run that nobody has finished or holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ..data import Corpus
from ..errors import InputError
from ..files import write_text
from ..model.head_schedule import HeadSchedule
from ..settings import differences, from_mapping, read_yaml, to_mapping
from ..training.metrics import METRICS, read_metrics
from ..training.recipe import Recipe
from .arms import Arm
from .measured import ArmInfo, Endpoint, RunResult, Status
from .plan import RunKey, StudySettings, order_runs

STUDY = "study.yaml"
FORMAT = "prism-transformer study 1"


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The content of study.yaml."""

    format: str = FORMAT
    name: str
    created: str
    data: str
    """The folder of the prepared text, relative to the study folder where it lies in it."""
    data_fingerprint: str
    study: StudySettings
    looks: tuple[int, ...] = ()
    """The seed counts at which all runs were finished and judged."""
    recipe: Recipe


class Study:
    """A study folder that is open: its settings, arms and runs."""

    def __init__(self, folder: Path, file: StudyFile, arms: list[Arm]) -> None:
        self.folder, self.file, self.arms = folder, file, arms

    @classmethod
    def open(cls, folder: Path) -> "Study":
        """Raises InputError for a folder that is no study, or whose study.yaml was damaged."""
        path = folder / STUDY
        if not path.exists():
            raise InputError(f"{folder} is no study: it has no {STUDY}; make one with `prism compare --out {folder}`")
        values = read_yaml(path)
        if values.get("format") != FORMAT:
            raise InputError(f"{path}: format {values.get('format')!r} is not known; {FORMAT!r} is")
        arms = values.pop("arms", None)
        file = from_mapping(StudyFile, values, where=str(path))
        if not isinstance(arms, Mapping) or not arms:
            raise InputError(f"{path} has no arms; restore the file")
        return cls(folder, file, [_read_arm(name, value, file.recipe, path) for name, value in arms.items()])

    @classmethod
    def create(
        cls, folder: Path, *, name: str, settings: StudySettings, recipe: Recipe, arms: list[Arm], corpus: Corpus
    ) -> "Study":
        """Write study.yaml before the first run, or extend one that differs only by more seeds or arms.

        Raises InputError naming everything else that differs, and for a folder that holds something else.
        """
        data = corpus.folder.resolve()
        inside = data.is_relative_to(folder.resolve())
        file = StudyFile(
            name=name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            data=str(data.relative_to(folder.resolve()) if inside else data),
            data_fingerprint=corpus.fingerprint,
            study=settings,
            recipe=recipe,
        )
        study = cls(folder, file, arms)
        if (folder / STUDY).exists():
            study = cls.open(folder)._extended(study)
        study.write()
        return study

    def _extended(self, new: "Study") -> "Study":
        """This study with the seeds and arms of `new`, where nothing else differs."""
        old_file, new_file = to_mapping(self.file), to_mapping(new.file)
        for mapping in (old_file, new_file):
            for free in ("created", "looks", "name", "data"):
                mapping.pop(free)
            mapping["recipe"].pop("data")  # what was read is data_fingerprint, not where it lay
            for free in ("arms", "seeds", "jobs", "calibrate"):
                mapping["study"].pop(free)
        changed = differences(old_file, new_file)
        old_arms, new_arms = ({arm.name: arm for arm in study.arms} for study in (self, new))
        for name, arm in old_arms.items():
            if name not in new_arms:
                changed.append(f"arms: {name} is missing")
            elif replace(new_arms[name], role=arm.role) != arm:
                changed.append(f"arms: {name}: {arm.schedule} {dict(arm.settings)} -> {new_arms[name].schedule}")
        if new.file.study.seeds < self.file.study.seeds:
            changed.append(f"study.seeds: {self.file.study.seeds} -> {new.file.study.seeds} (only more are possible)")
        if changed:
            lines = "\n  ".join(changed)
            raise InputError(
                f"{self.folder} holds a study with other settings; use another folder, or the same settings with more "
                f"seeds or arms:\n  {lines}"
            )
        file = replace(new.file, created=self.file.created, looks=self.file.looks, data=self.file.data)
        return Study(self.folder, file, new.arms)

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arms = {
            arm.name: {"heads": str(arm.schedule), "role": arm.role, "settings": dict(arm.settings)}
            for arm in self.arms
        }
        content = to_mapping(self.file) | {"arms": arms}
        write_text(self.folder / STUDY, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    @property
    def rates(self) -> tuple[float, ...]:
        return self.file.study.lr or (self.file.recipe.optimizer.lr,)

    @property
    def seeds(self) -> list[int]:
        first = self.file.recipe.training.seed
        return list(range(first, first + self.file.study.seeds))

    @property
    def runs(self) -> list[RunKey]:
        """Every run in the order of training."""
        return order_runs([arm.name for arm in self.arms], self.seeds, self.rates)

    def open_corpus(self) -> Corpus:
        """The prepared text. Raises InputError where it is not the one that the study began with."""
        corpus = Corpus.open(self.folder / self.file.data, tokenizer=self.file.recipe.data.tokenizer)
        if corpus.fingerprint != self.file.data_fingerprint:
            raise InputError(f"{corpus.folder} is not the text that the study in {self.folder} began with; restore it")
        return corpus

    def run_folder(self, run: RunKey) -> Path:
        folder = self.folder / "runs" / run.arm
        return (folder / f"lr-{run.lr:g}" if len(self.rates) > 1 else folder) / f"seed-{run.seed}"

    def run_recipe(self, run: RunKey) -> Recipe:
        arm = next(arm for arm in self.arms if arm.name == run.arm)
        return arm.recipe(self.file.recipe, seed=run.seed, lr=run.lr)

    def status(self, run: RunKey) -> Status:
        return _status(self.records(run))

    def records(self, run: RunKey) -> list[dict[str, Any]]:
        path = self.run_folder(run) / METRICS
        return read_metrics(path) if path.exists() else []

    def result(self, run: RunKey) -> RunResult:
        """What the statistics take from one run."""
        records = self.records(run)
        status = _status(records)
        curve = [(r["step"], r["tokens"], r["seconds"], r["val_loss"]) for r in records if "val_loss" in r]
        speeds = sorted(r["tokens_per_second"] for r in records[1:] if r.get("tokens_per_second"))
        return RunResult(
            arm=run.arm,
            seed=run.seed,
            status=status,
            val_loss=records[-1]["val_loss"] if status == "done" else None,
            tokens=records[-1]["tokens"] if records else 0,
            curve=curve,
            tokens_per_second=speeds[len(speeds) // 2] if speeds else None,
            lr=run.lr,
            source=str((self.run_folder(run) / METRICS).relative_to(self.folder)),
        )

    def arm_infos(self) -> list[ArmInfo]:
        return [
            ArmInfo(name=arm.name, heads=arm.schedule.heads, role=arm.role, settings=arm.settings) for arm in self.arms
        ]

    def endpoint(self) -> Endpoint:
        settings = self.file.study
        return Endpoint(
            baseline=next(arm.name for arm in self.arms if arm.role == "baseline"),
            primary=next((arm.name for arm in self.arms if arm.role == "primary"), None),
            planned_seeds=settings.seeds,
            confidence=settings.confidence,
            equivalence=settings.equivalence,
            looks=self.file.looks,
        )

    def looked(self) -> "Study":
        """Record that all planned runs were finished and judged: a later extension is one more look."""
        seeds = self.file.study.seeds
        if seeds in self.file.looks:
            return self
        study = Study(self.folder, replace(self.file, looks=(*self.file.looks, seeds)), self.arms)
        study.write()
        return study


def _status(records: list[dict[str, Any]]) -> Status:
    last = records[-1] if records else {}
    return "done" if last.get("final") else "diverged" if last.get("diverged") else "pending"


def _read_arm(name: str, value: Any, recipe: Recipe, path: Path) -> Arm:
    try:
        schedule = HeadSchedule.parse(value["heads"], d_model=recipe.model.d_model, n_layers=recipe.model.layers)
        return Arm(name=name, schedule=schedule, role=value["role"], settings=value["settings"])
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"{path}, arm {name}: {error}; restore the file") from None
