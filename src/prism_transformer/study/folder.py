"""The study folder: what was fixed before the first run, and what its runs have shown so far.

    study.yaml  data/  runs/ARM/seed-K/  results.json  report.html

The folder is the queue: every process that shares it takes the next run that nobody has finished or holds.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ..data import Corpus
from ..errors import InputError
from ..files import STUDY, path_from, read_json
from ..settings import differences, to_mapping
from ..training.metrics import DOCUMENTS, METRICS, read_metrics
from ..training.recipe import Recipe
from .arms import Arm
from .measured import ArmInfo, Documents, Endpoint, Evaluation, Role, RunResult, Status
from .plan import RunKey, StudySettings, planned_runs
from .study_file import StudyFile, read_study_file, write_study_file

if TYPE_CHECKING:
    import pandas

LOCK = ".lock"


class Study:
    """A study folder that is open: its settings, arms and runs."""

    def __init__(self, folder: Path, file: StudyFile, arms: list[Arm]) -> None:
        self.folder, self.file, self.arms = folder, file, arms

    @classmethod
    def open(cls, folder: Path | str) -> "Study":
        """Raises InputError for a folder that is no study, or whose study.yaml was damaged."""
        folder = Path(folder)
        if not (folder / STUDY).exists():
            raise InputError(f"{folder} is no study: it has no {STUDY}; name the folder that `prism compare` made")
        return cls(folder, *read_study_file(folder / STUDY))

    @classmethod
    def create(
        cls, folder: Path, *, name: str, settings: StudySettings, recipe: Recipe, arms: list[Arm], corpus: Corpus
    ) -> "Study":
        """Write study.yaml before the first run, or extend one that differs only by more seeds or arms.

        Raises InputError naming everything else that differs, and for a folder that holds something else.
        """
        file = StudyFile(
            name=name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            data=path_from(folder, corpus.folder),
            data_fingerprint=corpus.fingerprint,
            study=settings,
            recipe=recipe,
        )
        study = cls(folder, file, arms)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK):
            if (folder / STUDY).exists():
                study = cls.open(folder)._extended(study)
            write_study_file(folder / STUDY, study.file, study.arms)
        return study

    def _extended(self, new: "Study") -> "Study":
        """This study with the seeds and arms of `new`, where nothing else differs; its primary arm stays."""
        old_file, new_file = to_mapping(self.file), to_mapping(new.file)
        for mapping in (old_file, new_file):
            for free in ("created", "looks", "name", "data"):
                mapping.pop(free)
            mapping["recipe"].pop("data")  # what was read is data_fingerprint, not where it lay
            for free in ("arms", "seeds", "jobs", "calibrate", "budget", "expected_sd", "primary"):
                mapping["study"].pop(free)
        changed = differences(old_file, new_file) + self._changed_arms(new)
        if new.file.study.seeds < self.file.study.seeds:
            changed.append(f"study.seeds: {self.file.study.seeds} -> {new.file.study.seeds} (only more are possible)")
        if changed:
            lines = "\n  ".join(changed)
            raise InputError(
                f"{self.folder} holds a study with other settings; use another folder (--out), or the same settings "
                f"with more seeds or arms:\n  {lines}"
            )
        roles = {arm.name: arm.role for arm in self.arms}
        spare: Role | None = "secondary" if self.primary else None
        arms = [
            replace(arm, role=roles.get(arm.name) or (spare if spare and arm.role == "primary" else arm.role))
            for arm in new.arms
        ]
        settings = replace(new.file.study, primary=self.file.study.primary) if self.primary else new.file.study
        old = self.file
        looks = self.looks_before(settings.seeds)
        file = replace(new.file, study=settings, created=old.created, looks=looks, data=old.data)
        return Study(self.folder, file, arms)

    def looks_before(self, seeds: int) -> tuple[int, ...]:
        """The looks at this study before one with so many seeds.

        Where an arm and the baseline have finished with a seed that no look has had, that may be why more are wanted.
        """
        seen = max(self.file.looks, default=0)
        done = [run for run in self.runs if run.seed in self.seeds[seen:] and self.status(run) == "done"]
        baseline = next(arm.name for arm in self.arms if arm.role == "baseline")
        of_baseline = {run.seed for run in done if run.arm == baseline}
        has_a_pair = any(run.seed in of_baseline and run.arm != baseline for run in done)
        last = {self.file.study.seeds} if has_a_pair and seeds > self.file.study.seeds else set[int]()
        return tuple(sorted({*self.file.looks, *last}))

    def _changed_arms(self, new: "Study") -> list[str]:
        """A line for each arm of this study that is not in `new` as it was."""
        changed = []
        new_arms = {arm.name: arm for arm in new.arms}
        for arm in self.arms:
            if arm.name not in new_arms:
                changed.append(f"arms: {arm.name} is missing")
            elif replace(new_arms[arm.name], role=arm.role) != arm:
                changed.append(f"arms: {arm.name}: {_in_words(arm)} -> {_in_words(new_arms[arm.name])}")
        asked = new.file.study.primary
        if self.primary and asked not in (None, self.primary):
            changed.append(f"study.primary: {self.primary} -> {asked} (fixed before the first run)")
        return changed

    @property
    def title(self) -> str:
        """What tells it from other studies of one recipe: its folder, and the recipe where that has another name."""
        folder, recipe = self.folder.resolve().name, self.file.name
        return folder if folder == recipe else f"{folder} (recipe {recipe})"

    @property
    def primary(self) -> str | None:
        """The arm that the verdict is about."""
        return next((arm.name for arm in self.arms if arm.role == "primary"), None)

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
        return planned_runs(self.file.recipe, self.file.study, self.arms)

    def open_corpus(self) -> Corpus:
        """The prepared text. Raises InputError where it is not the one that the study began with."""
        corpus = Corpus.open(self.folder / self.file.data, tokenizer=self.file.recipe.data.named_tokenizer)
        if corpus.fingerprint != self.file.data_fingerprint:
            raise InputError(f"{corpus.folder} is not the text that the study in {self.folder} began with; restore it")
        return corpus

    def run_folder(self, run: RunKey) -> Path:
        folder = self.folder / "runs" / run.arm
        return (folder / f"lr-{run.lr}" if len(self.rates) > 1 else folder) / f"seed-{run.seed}"

    def run_recipe(self, run: RunKey) -> Recipe:
        arm = next(arm for arm in self.arms if arm.name == run.arm)
        return arm.recipe(self.file.recipe, seed=run.seed, lr=run.lr)

    def status(self, run: RunKey) -> Status:
        return status_of(self.records(run))

    def records(self, run: RunKey) -> list[dict[str, Any]]:
        path = self.run_folder(run) / METRICS
        return read_metrics(path) if path.exists() else []

    def frame(self) -> "pandas.DataFrame":
        """Every evaluation of every run as a pandas DataFrame, in the order of training.

        Columns: arm, heads (a schedule's text), seed, lr, step, tokens, seconds, val_loss (nats a token), final.
        Raises InputError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("frame() needs pandas, which is not installed: pip install pandas") from None
        heads = {arm.name: str(arm.schedule) for arm in self.arms}
        columns = ["arm", "heads", "seed", "lr", "step", "tokens", "seconds", "val_loss", "final"]
        rows = [
            {"heads": heads[run.arm], "final": False, **run._asdict(), **record}
            for run in self.runs
            for record in self.records(run)
            if "val_loss" in record
        ]
        return pandas.DataFrame([{name: row[name] for name in columns} for row in rows], columns=columns)

    def result(self, run: RunKey) -> RunResult:
        """What the statistics take from one run."""
        records = self.records(run)
        status = status_of(records)
        curve = [
            Evaluation(r["step"], r["tokens"], r["seconds"], r["val_loss"], is_whole="val_bits_per_byte" in r)
            for r in records
            if "val_loss" in r
        ]
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
            documents=self._documents(run) if status == "done" else None,
        )

    def _documents(self, run: RunKey) -> Documents | None:
        path = self.run_folder(run) / DOCUMENTS
        return Documents(**read_json(path)) if path.exists() else None

    def arm_infos(self) -> list[ArmInfo]:
        return [
            ArmInfo(name=arm.name, heads=arm.schedule.heads, role=arm.role, settings=arm.settings) for arm in self.arms
        ]

    def endpoint(self) -> Endpoint:
        settings = self.file.study
        return Endpoint(
            baseline=next(arm.name for arm in self.arms if arm.role == "baseline"),
            primary=self.primary,
            planned_seeds=settings.seeds,
            confidence=settings.confidence,
            equivalence=settings.equivalence,
            looks=self.file.looks,
        )

    def looked(self) -> "Study":
        """This study, recorded as one whose planned runs are all finished: a later extension is one more look."""
        with FileLock(self.folder / LOCK):
            now = Study.open(self.folder)  # another process may have looked or extended it
            looks = tuple(sorted({*now.file.looks, self.file.study.seeds}))
            if looks != now.file.looks:
                write_study_file(self.folder / STUDY, replace(now.file, looks=looks), now.arms)
        return Study(self.folder, replace(self.file, looks=looks), self.arms)


def status_of(records: list[dict[str, Any]]) -> Status:
    """The status of a run with these metrics."""
    last = records[-1] if records else {}
    return "done" if last.get("final") else "diverged" if last.get("diverged") else "pending"


def _in_words(arm: Arm) -> str:
    return " ".join([str(arm.schedule), *(f"{key}={value}" for key, value in arm.settings.items())])
