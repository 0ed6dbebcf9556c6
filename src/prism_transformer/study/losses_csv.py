"""Runs of any trainer from one CSV file: arm, seed, step, tokens, loss.

One row an evaluation; `loss` is the validation loss in nats per token; the row with the most tokens is a run's final
loss. Optional columns: heads (a schedule's text), lr, seconds, tokens_per_second. What can be used is used, and what
is not is said; what cannot be compared at all is refused.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..model.head_schedule import HeadSchedule
from ..settings import nearest
from ..wording import count, listed
from .measured import ArmInfo, Endpoint, Evaluation, Role, RunResult

REQUIRED = ("arm", "seed", "step", "tokens", "loss")
OPTIONAL = ("heads", "lr", "seconds", "tokens_per_second")
MOST_PROBLEMS = 10


class Losses(NamedTuple):
    """What `analyse` takes, and what the file had besides."""

    arms: list[ArmInfo]
    runs: list[RunResult]
    endpoint: Endpoint
    notes: list[str]
    """what was used and what was not, one sentence each"""


@dataclass(frozen=True)
class _Row:
    line: int
    arm: str
    seed: int
    lr: float | None
    heads: str
    speed: float | None
    evaluation: Evaluation


def read_losses(path: Path, *, baseline: str | None = None, primary: str | None = None) -> Losses:
    """Read the file and settle who is compared with whom.

    `baseline`: by default the arm called uniform. `primary`: by default the only other arm, else prism where there is
    one, else none. Raises `InputError` with every problem and its line.
    """
    rows, notes = _read_rows(path)
    runs = {key: sorted(of_run, key=lambda row: row.evaluation.tokens) for key, of_run in _by_run(rows).items()}
    names = list(dict.fromkeys(row.arm for row in rows))
    baseline, primary = _roles(path, names, baseline, primary)
    tokens = _final_tokens(path, runs, baseline)
    seeds = sorted({seed for _, seed, _ in runs})
    results = [_run(path, key, of_run, tokens, notes) for key, of_run in runs.items()]
    results += _absent(results, names, seeds, notes)
    arms = [_arm(path, name, rows, _role(name, baseline, primary)) for name in names]
    used = f"{path.name}: {count(len(names), 'arm')}, {count(len(seeds), 'seed')}, final loss at {tokens:,} tokens."
    endpoint = Endpoint(baseline=baseline, primary=primary, planned_seeds=len(seeds))
    return Losses(arms, results, endpoint, [used, *notes])


def _read_rows(path: Path) -> tuple[list[_Row], list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a CSV file with columns {', '.join(REQUIRED)}") from None
    except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from None
    header = text.partition("\n")[0]
    delimiter = next((d for d in ",;\t" if d in header), ",")
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    reader.fieldnames = columns
    _check_columns(path, columns)
    rows: list[_Row] = []
    problems: list[str] = []
    for record in reader:
        try:
            rows.append(_row(reader.line_num, record))
        except ValueError as error:
            problems.append(f"{path.name} line {reader.line_num}: {error}")
    problems += _contradictions(path, rows)
    if not rows and not problems:
        problems.append(f"{path} has no rows below its header")
    if problems:
        more = len(problems) - MOST_PROBLEMS
        raise InputError([*problems[:MOST_PROBLEMS], *([f"and {count(more, 'more problem')}"] if more > 0 else [])])
    ignored = [name for name in columns if name not in REQUIRED + OPTIONAL]
    return rows, [f"Columns not used: {listed(ignored)}."] if ignored else []


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    problems = []
    for name in REQUIRED:
        if name not in columns:
            close = get_close_matches(name, columns, n=1) or [column for column in columns if name in column]
            hint = f"rename {close[0]!r}?" if close else f"columns: {', '.join(columns) or 'none'}"
            problems.append(f"{path.name} has no column {name!r}; {hint}")
    if problems:
        raise InputError(problems)


def _row(line: int, record: dict[str, Any]) -> _Row:
    """One line of the file; ValueError says what is wrong with it."""
    cells = {key: (value or "").strip() for key, value in record.items() if isinstance(key, str)}
    if not cells["arm"]:
        raise ValueError("arm is empty; every row names its arm")
    step, tokens = _whole("step", cells["step"]), _whole("tokens", cells["tokens"])
    optional = {key: _number(key, cells[key]) for key in OPTIONAL[1:] if cells.get(key)}
    for key, value in optional.items():
        if not (math.isfinite(value) and value >= 0) or (key != "seconds" and value == 0):
            raise ValueError(f"{key}={cells[key]!r} is not a positive number")
    return _Row(
        line=line,
        arm=cells["arm"],
        seed=_whole("seed", cells["seed"]),
        lr=optional.get("lr"),
        heads=cells.get("heads", ""),
        speed=optional.get("tokens_per_second"),
        evaluation=Evaluation(step, tokens, optional.get("seconds", 0.0), _number("loss", cells["loss"])),
    )


def _whole(name: str, text: str) -> int:
    value = _number(name, text)
    if not value.is_integer() or value < 0:
        raise ValueError(f"{name}={text!r} is not a whole number from 0 on")
    return int(value)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number") from None


_Key = tuple[str, int, float | None]


def _by_run(rows: Sequence[_Row]) -> dict[_Key, list[_Row]]:
    runs: dict[_Key, list[_Row]] = {}
    for row in rows:
        runs.setdefault((row.arm, row.seed, row.lr), []).append(row)
    return runs


def _contradictions(path: Path, rows: Sequence[_Row]) -> list[str]:
    """Two rows of one run for one step, or tokens that do not grow with the steps."""
    problems = []
    for (arm, seed, _), of_run in _by_run(rows).items():
        for before, after in pairwise(sorted(of_run, key=lambda row: row.evaluation.step)):
            where = f"{path.name} lines {before.line} and {after.line}: arm {arm!r}, seed {seed}"
            if before.evaluation.step == after.evaluation.step:
                problems.append(f"{where} has step {after.evaluation.step} twice; keep one")
            elif before.evaluation.tokens >= after.evaluation.tokens:
                problems.append(f"{where} has no more tokens at step {after.evaluation.step} than before it")
    return problems


def _roles(path: Path, names: Sequence[str], baseline: str | None, primary: str | None) -> tuple[str, str | None]:
    problems = []
    for what, name in (("baseline", baseline), ("primary", primary)):
        if name is not None and name not in names:
            problems.append(f"{what} {name!r} is not an arm; {nearest(name, names)}")
    if len(names) < 2:
        problems.append(f"{path.name} has only the arm {names[0]!r}; a comparison needs a baseline and another arm")
    if baseline is None and "uniform" not in names:
        problems.append(f"{path.name} has no arm 'uniform'; name the baseline, one of {', '.join(names)}")
    if problems:
        raise InputError(problems)
    chosen = baseline or "uniform"
    others = [name for name in names if name != chosen]
    guess = others[0] if len(others) == 1 else "prism" if "prism" in others else None
    return chosen, primary or guess


def _role(name: str, baseline: str, primary: str | None) -> Role:
    return "baseline" if name == baseline else "primary" if name == primary else "secondary"


def _final_tokens(path: Path, runs: dict[_Key, list[_Row]], baseline: str) -> int:
    """The tokens at which runs count as finished: where most of the baseline's end."""
    ends: dict[str, Counter[int]] = {}
    for (arm, _, _), of_run in runs.items():
        ends.setdefault(arm, Counter())[of_run[-1].evaluation.tokens] += 1
    tokens = max(ends[baseline], key=lambda end: (ends[baseline][end], end))
    unequal = [
        f"{path.name}: no run of {arm!r} ends at the {tokens:,} tokens of the baseline {baseline!r} (they end at "
        f"{listed([f'{end:,}' for end in sorted(of_arm)])}); only runs on equal tokens compare"
        for arm, of_arm in ends.items()
        if tokens not in of_arm
    ]
    if unequal:
        raise InputError(unequal)
    return tokens


def _run(path: Path, key: _Key, of_run: Sequence[_Row], tokens: int, notes: list[str]) -> RunResult:
    arm, seed, lr = key
    final = of_run[-1].evaluation
    name = f"{arm} seed {seed}" + (f" at lr {lr:g}" if lr is not None else "")
    is_finished, is_finite = final.tokens == tokens, math.isfinite(final.val_loss)
    if not is_finite:
        notes.append(f"Diverged: {name}, loss {final.val_loss} at step {final.step}.")
    elif not is_finished:
        notes.append(f"Not used: {name} ends at {final.tokens:,} tokens (step {final.step}) and not at {tokens:,}.")
    speeds = [row.speed for row in of_run if row.speed is not None]
    return RunResult(
        arm=arm,
        seed=seed,
        status="diverged" if not is_finite else "done" if is_finished else "missing",
        val_loss=final.val_loss if is_finished and is_finite else None,
        tokens=final.tokens,
        curve=[row.evaluation for row in of_run if math.isfinite(row.evaluation.val_loss)],
        tokens_per_second=speeds[-1] if speeds else None,
        lr=lr,
        source=f"{path.name}, line {of_run[-1].line}",
    )


def _absent(runs: Sequence[RunResult], names: Sequence[str], seeds: Sequence[int], notes: list[str]) -> list[RunResult]:
    """The runs that an arm has not and another has."""
    absent = []
    for name in names:
        own = {run.seed for run in runs if run.arm == name}
        lacking = [seed for seed in seeds if seed not in own]
        if lacking:
            notes.append(
                f"Missing: {name} has no seed {listed([str(seed) for seed in lacking])}; those pairs are left out."
            )
        rates = dict.fromkeys(run.lr for run in runs if run.arm == name)
        absent += [
            RunResult(arm=name, seed=seed, status="missing", val_loss=None, tokens=0, lr=rate)
            for seed in lacking
            for rate in rates
        ]
    return absent


def _arm(path: Path, name: str, rows: Sequence[_Row], role: Role) -> ArmInfo:
    texts = sorted({row.heads for row in rows if row.arm == name and row.heads})
    if len(texts) > 1:
        raise InputError(
            f"{path.name}: arm {name!r} has several schedules ({'; '.join(texts)}); one arm is one schedule"
        )
    return ArmInfo(name=name, heads=_heads(path, name, texts[0]) if texts else (), role=role)


def _heads(path: Path, name: str, text: str) -> tuple[int, ...]:
    """Heads per layer; the width is not in the file and not needed, so any that all head counts divide will do."""
    try:
        counts = [int(item.split("x")[0]) for item in text.lower().replace("*", "x").split(",")]
        return HeadSchedule.parse(text, d_model=math.lcm(*counts)).heads
    except ValueError as error:
        raise InputError(
            f"{path.name}: heads={text!r} of arm {name!r} is no schedule like 3x2,6x2,8x2,12x6: {error}"
        ) from None
