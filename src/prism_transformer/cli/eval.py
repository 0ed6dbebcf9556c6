"""`prism eval RUN… --tasks TASK… | --text FILE…`: what trained models score, and whether they differ."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..errors import InputError
from ..files import STUDY
from .evaluation_tables import difference_lines, footer_lines, task_lines, text_lines
from .options import Switch, parse
from .progress import ScoreProgress


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Score trained models: on tasks of lm-evaluation-harness, and on any text.

    Two or more are compared, item by item and seed by seed.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")] = ()
    """Runs, checkpoints, or folders of Hugging Face models; a study means all its finished runs."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-evaluation-harness by name.
    paper stands for hellaswag piqa winogrande blimp arc_easy wikitext lambada_openai."""
    text: tuple[str, ...] = ()
    """Text to measure the loss on: files, folders, globs, or - for standard input."""
    eval_data: Path | None = None
    """Folder with the tasks' items: data sets of the hub, or plain files like piqa_validation.jsonl.
    What is not in it comes from the hub's cache, or else from the hub."""
    limit: int | None = None
    """Only the first items of each task."""
    shots: int | None = None
    """Examples in the prompt; default: the task's own, which is 0 for the paper's."""
    batch_size: int = 16
    """Sequences scored at once; changes the time, not the scores."""
    device: str = "auto"
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the matrix products."""
    tokenizer: str | None = None
    """Tokenizer of a folder that holds none: gpt2, bytes, or a Hugging Face tokenizer's folder."""
    text_field: str = "text"
    """The field of .jsonl lines, and the column of .parquet files, that holds the text."""
    out: Path | None = None
    """Where scores and items are kept; default: in the run, or in evaluations/ for other folders."""
    json: Switch = False
    """Print everything as JSON."""


def main(argv: list[str]) -> int:
    options = parse(Eval, argv, prog="prism eval")
    _check(options)
    with ScoreProgress() as progress:
        found = _evaluate(options, progress)
    if options.json:
        print(json.dumps(found))
        return 0
    lines = [
        *text_lines(found["runs"]),
        *task_lines(found["runs"]),
        *difference_lines(found["runs"], found["comparisons"]),
    ]
    print("\n".join([*lines, *footer_lines(found["runs"])]))
    return 0


def _check(options: Eval) -> None:
    problems = []
    if not options.runs:
        problems.append("name a run, a checkpoint, a study, or the folder of a Hugging Face model")
    if not options.tasks and not options.text:
        problems.append("say what to score: --tasks piqa arc_easy (or paper), or --text FILE")
    problems += [
        f"{path}: no such folder; give a run, a checkpoint, a study, or the folder of a Hugging Face model"
        for path in options.runs
        if not path.is_dir()
    ]
    counts = {"--limit": options.limit, "--batch-size": options.batch_size}
    problems += [
        f"{name} {value} must be at least 1" for name, value in counts.items() if value is not None and value < 1
    ]
    if options.shots is not None and options.shots < 0:
        problems.append(f"--shots {options.shots} must not be negative")
    if problems:
        raise InputError(problems)
    if options.tasks:
        from ..evaluation.zero_shot import require_harness

        require_harness()


def _evaluate(options: Eval, progress: ScoreProgress) -> dict[str, Any]:
    from ..evaluation.comparison import compare_arms, same_items
    from ..evaluation.evaluate import Computation
    from ..evaluation.zero_shot import open_tasks
    from ..training.device import choose_device, torch_settings_kept
    from ..training.recipe import DeviceSettings

    paths = expand_studies(options.runs)
    _refuse_doubles(paths)
    with torch_settings_kept():
        device = choose_device(DeviceSettings(device=options.device, dtype=options.dtype))
        how = Computation(
            device=device.device,
            dtype=options.dtype,
            batch_size=options.batch_size,
            autocast=device.autocast,
            on_progress=progress.show,
        )
        with ExitStack() as stack:
            tasks = None
            if options.tasks:
                opened = open_tasks(options.tasks, folder=options.eval_data, shots=options.shots, say=progress.say)
                tasks = stack.enter_context(opened)
            found = [_one(path, options, how, tasks, progress) for path in paths]
    texts = [scores.pop("text") for _, scores in found if "text" in scores]
    comparisons = compare_arms([{"text": each} for each in texts]) if same_items(texts) else []
    of_tasks = compare_arms([runs for _, runs in found])
    if options.tasks and len(options.runs) == 1 and is_study(options.runs[0]):
        _into_report(options, found, of_tasks)
    return {"runs": [entry for entry, _ in found], "comparisons": [*comparisons, *of_tasks]}


def _refuse_doubles(paths: Sequence[Path]) -> None:
    """Raise InputError where two models have one name: they are told apart and paired by arm and seed."""
    from ..evaluation.loading import name_of

    counts = Counter(name_of(path) for path in paths)
    if doubles := [name for name, count in counts.items() if count > 1]:
        named = ", ".join(doubles[:3]) + (f" and {len(doubles) - 3} more" if len(doubles) > 3 else "")
        raise InputError(
            f"{named}: given twice, by two studies or paths, and models are paired by arm and seed; score one study "
            "at a time"
        )


def is_study(path: Path) -> bool:
    """Whether a folder is that of a study."""
    return (path / STUDY).is_file()


def _into_report(
    options: Eval, found: Sequence[tuple[dict[str, Any], dict[str, Any]]], comparisons: list[dict[str, Any]]
) -> None:
    """Add the scores of a study to its folder and its page."""
    from ..study.compare import conclude
    from ..study.folder import Study
    from ..study.zero_shot import keep_scores

    folder = options.runs[0]
    places = [Path(entry["kept"]) for entry, _ in found]
    scored = [runs for _, runs in found]
    keep_scores(folder, scored, places, comparisons, limit=options.limit, shots=options.shots)
    conclude(Study.open(folder))


def _one(
    path: Path, options: Eval, how: Any, tasks: Any, progress: ScoreProgress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one model scores, and its scores with their items for the comparison."""
    from ..evaluation.evaluate import evaluate_tasks, evaluate_text
    from ..evaluation.loading import load
    from ..evaluation.scores import place_of

    progress.begin(str(path))
    loaded = load(path, tokenizer=options.tokenizer, device=how.device)
    entry: dict[str, Any] = {"name": loaded.name, "model": loaded.describe()}
    texts = {}
    if options.text:
        entry["text"], texts["text"] = evaluate_text(loaded, options.text, how, text_field=options.text_field)
    if tasks is None:
        return entry, texts
    place = place_of(loaded, options.out)
    runs = evaluate_tasks(loaded, tasks, how, folder=place, limit=options.limit, shots=options.shots)
    return entry | {"scores": {name: run.score for name, run in runs.items()}, "kept": str(place)}, runs | texts


def expand_studies(paths: Sequence[Path]) -> list[Path]:
    """Each study as its finished runs, the baseline's first. Raises InputError for one that has none."""
    from ..study.folder import Study
    from ..study.zero_shot import finished_runs

    found: list[Path] = []
    for path in paths:
        if not is_study(path):
            found.append(path)
            continue
        study = Study.open(path)
        done = finished_runs(study)
        if not done:
            raise InputError(f"{path}: no run of this study is finished yet")
        found += [study.run_folder(run) for run in done]
    return found
