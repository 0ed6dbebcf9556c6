"""What a report shows beside the results: settings, versions, machine, and the plan beside what happened."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..data import Corpus, packing
from ..errors import InputError
from ..files import read_json, size_text
from ..settings import to_mapping
from ..training.metrics import ENVIRONMENT
from ..training.text import MOST_EPOCHS
from ..wording import count
from .estimate import duration
from .folder import Study
from .measured import RunResult
from .planning import plan_of
from .wording import plain

SMALL_VALIDATION = 50_000
"""Tokens below which the noise of the validation text itself is worth a word: about 0.5 % of the loss and more."""


def report_context(study: Study, runs: Sequence[RunResult], results: Mapping[str, Any]) -> dict[str, Any]:
    """The context of `report.write_report` for a study. `results` is what `analyse` made of `runs`."""
    machines = environments(study)
    first = machines[0] if machines else {}
    notes = [f"The runs were trained on {len(machines)} different machines or versions."] if len(machines) > 1 else []
    corpus = None
    try:
        corpus = study.open_corpus()
    except InputError as error:  # a study whose text was removed can still be judged
        notes += [f"The text is not here any more: {problem}" for problem in error.problems]
    else:
        notes += text_notes(study, corpus)
    machine = {key: first[key] for key in ("processor", "gpu", "platform", "device", "threads") if first.get(key)}
    return {
        "title": f"Study {study.title}",
        "created": f"{study.file.created[:16].replace('T', ' ')} UTC",
        "settings": to_mapping(study.file.recipe) | {"study": to_mapping(study.file.study)},
        "versions": first.get("versions", {}),
        "machine": machine,
        "plan": plan_rows(study, runs, results, corpus),
        "notes": notes,
    }


def environments(study: Study) -> list[dict[str, Any]]:
    """The distinct machines and versions of the runs, the first one's first."""
    found: list[dict[str, Any]] = []
    for run in study.runs:
        path = study.run_folder(run) / ENVIRONMENT
        if path.exists():
            environment = {key: value for key, value in read_json(path).items() if key != "data_fingerprint"}
            if environment not in found:
                found.append(environment)
    return found


def text_notes(study: Study, corpus: Corpus) -> list[str]:
    """What the text was, and what is to be said of it."""
    recipe = study.file.recipe
    train, validation = corpus.split("train"), corpus.split("validation")
    cut = packing(train, context=recipe.model.context)
    epochs = recipe.trained_tokens / (cut.windows * recipe.model.context)
    origin = f" from {corpus.manifest.origin}" if corpus.manifest else ""
    notes = [
        f"Text: {len(train):,} training and {len(validation):,} validation tokens{origin}; a run reads it "
        f"{epochs:.1f} times."
    ]
    if epochs > MOST_EPOCHS:
        notes.append(f"More than {MOST_EPOCHS} epochs: a repeated text teaches less than a new one.")
    if len(validation) < SMALL_VALIDATION:
        notes.append(
            f"The validation split is small: what holds on its {len(validation):,} tokens need not hold on other text. "
            "Seeds do not show that; more validation text does."
        )
    return notes


def plan_rows(
    study: Study, runs: Sequence[RunResult], results: Mapping[str, Any], corpus: Corpus | None
) -> list[dict[str, str]]:
    """The plan beside what happened, a row each; without its text a study's disk is that of the recipe's vocabulary."""
    planned = plan_of(study, corpus)
    budget, seconds = study.file.study.budget, planned.training_seconds
    expected = [f"budget {budget}"] if budget else []
    expected += [f"about {duration(seconds)} of training in all, {planned.speed_source}"] if seconds else []
    finished = [run for run in runs if run.status in ("done", "diverged")]
    diverged = sum(run.status == "diverged" for run in runs)
    primary = results["differences"].get(results["primary"]) or {}
    measured = (primary.get("planning") or {}).get("detectable")
    happened = f"{len(finished)}" + (f", {count(diverged, 'run')} diverged" if diverged else "")
    factors = count(planned.arms, "arm"), count(planned.seeds, "seed"), count(planned.rates, "rate")
    rows = [
        ("Runs", f"{planned.runs} ({' × '.join(factors)})", happened),
        ("Tokens of training", f"{planned.tokens:,}", f"{sum(run.tokens for run in runs):,}"),
        (
            "Time",
            ", ".join(expected) or "not known",
            f"{duration(sum(map(training_seconds, runs)))} of training in all",
        ),
        (
            "Disk for checkpoints",
            f"{size_text(planned.disk_bytes)} at the most",
            f"{size_text(bytes_of_checkpoints(study))}",
        ),
        (
            "Smallest difference to be found",
            _nats(planned.detectable, "not known before the spread is"),
            _nats(measured),
        ),
        ("Looks", "1", str(results["endpoint"]["look"])),
    ]
    return [{"what": what, "planned": before, "happened": after} for what, before, after in rows]


def training_seconds(run: RunResult) -> float:
    """Seconds of training of a run, evaluation and saving not counted."""
    return run.curve[-1].seconds if run.curve else 0.0


def bytes_of_checkpoints(study: Study) -> int:
    return sum(path.stat().st_size for path in study.folder.glob("runs/**/checkpoints/**/*") if path.is_file())


def _nats(value: float | None, unknown: str = "–") -> str:
    return unknown if value is None else f"{plain(value)} nats per token"
