"""The items of an evaluation set from a folder: in the layout of the hub's data sets, or in plain files of this name.

FOLDER/baber/piqa/…/validation-00000-of-00001.parquet     as `hf download` writes it; also piqa/…, and the hub's cache
FOLDER/piqa_validation.jsonl.xz                           plain: one item a line; see PLAIN
"""

import hashlib
import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..data.compressed import open_bytes
from ..errors import InputError

Row = dict[str, Any]
_FILE = re.compile(r"(?P<split>.+?)(?:-\d+-of-\d+)?\.(?P<kind>jsonl|json|parquet)(?:\.(?:gz|xz|zst))?")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Where the harness would read a task's items on the hub."""

    hub: str
    """Such as baber/piqa."""
    config: str | None
    split: str


@dataclass(frozen=True, kw_only=True)
class LocalItems:
    """Items that were read from local files, in the fields of the hub."""

    rows: list[Row]
    files: tuple[str, ...]
    sha256: str
    """Over the bytes of the files, in order."""
    preprocessed: bool
    """Whether they are past the harness's own preparation (plain HellaSwag)."""


@dataclass(frozen=True, kw_only=True)
class _Plain:
    """A plain file: its name, the fields that an item must have, and how it becomes an item of the hub."""

    name: str
    fields: tuple[str, ...]
    convert: Callable[[Row], Row | None] = lambda row: row


def find_items(folder: Path, task: str, data: DataSet) -> LocalItems | None:
    """The items of `task` below `folder`; None where they are not there.

    Raises InputError naming file and line of an item that cannot be read or lacks a field.
    """
    plain = _plain(task)
    files = _plain_files(folder, task, plain) if plain else []
    files = files or _hub_files(folder, data)
    if not files:
        return None
    rows: list[Row] = []
    for file in files:
        rows += _checked(_rows(file, member=task.removeprefix("blimp_")), file, plain.fields if plain else ())
    converted = [row for row in map(plain.convert, rows) if row is not None] if plain else rows
    if not converted:
        raise InputError(f"{files[0]}: no item of {task} ({data.split}) in it; restore the file")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return LocalItems(
        rows=converted,
        files=tuple(map(str, files)),
        sha256=digest.hexdigest(),
        preprocessed=task == "hellaswag" and "ctx_a" not in converted[0],
    )


def how_to_fetch(folder: Path | None, data: DataSet) -> str:
    """What to do where a data set is neither here nor to be reached."""
    place = folder or Path("eval-data")
    return (
        f"on a machine with network: hf download {data.hub} --repo-type dataset --local-dir {place / data.hub}; "
        f"then give --eval-data {place}"
    )


def _arc(row: Row) -> Row:
    if isinstance(row["choices"], dict):
        return row
    letters = [chr(ord("A") + k) for k in range(len(row["choices"]))]
    choices = {"text": row["choices"], "label": letters}
    return {"question": row["question"], "choices": choices, "answerKey": letters[row["label"]]}


def _hellaswag(row: Row) -> Row:
    if "ctx_a" in row:
        return row
    return {"query": row["query"], "choices": row["endings"], "label": str(row["label"])}


def _wikitext(row: Row) -> Row | None:
    if "page" in row:
        return {"page": row["page"]}
    return {"page": row["text"]} if "test" in row.get("id", "test") else None


PLAIN = {
    "piqa": _Plain(name="piqa_validation", fields=("goal", "sol1", "sol2", "label")),
    "hellaswag": _Plain(name="hellaswag_validation", fields=("endings", "label"), convert=_hellaswag),
    "arc_easy": _Plain(name="arc_easy_test", fields=("question", "choices"), convert=_arc),
    "winogrande": _Plain(name="winogrande_xl_validation", fields=("sentence", "option1", "option2", "answer")),
    "lambada_openai": _Plain(name="lambada_openai_test", fields=("text",)),
    "wikitext": _Plain(name="wikitext2_valid_test", fields=(), convert=_wikitext),
    "blimp": _Plain(name="blimp", fields=("sentence_good", "sentence_bad")),
}
"""The plain files of the paper's tasks; blimp is a folder or archive of one file for each of its sets."""


def _plain(task: str) -> _Plain | None:
    return PLAIN.get("blimp" if task.startswith("blimp_") else task)


def _plain_files(folder: Path, task: str, plain: _Plain) -> list[Path]:
    if plain.name == "blimp":
        name = f"blimp/{task.removeprefix('blimp_')}.jsonl"
        found = [*folder.rglob(name), *folder.rglob("blimp.tar*")]
    else:
        found = [*folder.rglob(f"{plain.name}.jsonl*"), *folder.rglob(f"{plain.name}.parquet")]
    return sorted(found)[:1]


def _hub_files(folder: Path, data: DataSet) -> list[Path]:
    """The files of the split, and of the configuration where the folder tells them apart."""
    organisation, _, name = data.hub.rpartition("/")
    places = [
        folder / data.hub,
        folder / name,
        folder / f"{organisation}--{name}",
        *sorted((folder / f"datasets--{organisation}--{name}" / "snapshots").glob("*")),
        *([folder] if folder.name == name else []),
    ]
    for place in places:
        inside = [path for path in sorted(place.rglob("*")) if path.is_file() and _is_of(path, data.split)]
        of_config = [path for path in inside if data.config in path.relative_to(place).parts]
        if inside:
            return of_config or inside
    return []


def _is_of(path: Path, split: str) -> bool:
    found = _FILE.fullmatch(path.name)
    return found is not None and re.search(rf"(?:^|[_.-]){split}$", found["split"]) is not None


def _rows(file: Path, *, member: str) -> Iterator[tuple[str, Any]]:
    """(where, item) of each line or row; of an archive, of its member `member`.jsonl."""
    if ".tar" in file.suffixes:
        yield from _archived(file, member)
    elif file.suffix == ".parquet":
        yield from _parquet(file)
    else:
        with open_bytes(file) as opened:
            yield from _json_lines(opened, str(file))


def _json_lines(lines: Any, where: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield f"{where}, line {number}", json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}, line {number}: no JSON ({error}); restore the file") from None


def _archived(file: Path, member: str) -> Iterator[tuple[str, Any]]:
    content = _members(file, file.stat().st_mtime_ns).get(f"{member}.jsonl", b"")
    yield from _json_lines(content.splitlines(), f"{file}: {member}.jsonl")


@lru_cache(maxsize=1)
def _members(file: Path, modified_ns: int) -> dict[str, bytes]:
    """The files of an archive by name, read once for all the sets in it."""
    try:
        with tarfile.open(file) as archive:
            opened = {Path(each.name).name: archive.extractfile(each) for each in archive if each.isfile()}
            return {name: content.read() for name, content in opened.items() if content}
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read ({error}); restore it") from None


def _parquet(file: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: cannot be read as parquet ({error}); restore it") from None
    yield from ((f"{file}, row {number}", row) for number, row in enumerate(rows, start=1))


def _checked(rows: Iterator[tuple[str, Any]], file: Path, fields: Sequence[str]) -> list[Row]:
    """Every item with its fields, or an InputError with the first faults."""
    kept, problems = [], []
    for where, row in rows:
        missing = [field for field in fields if field not in row] if isinstance(row, dict) else ["an object"]
        if missing:
            problems.append(f"{where}: {' and '.join(missing)} missing; restore the file")
        kept.append(row)
    if problems:
        more = [f"{file}: and {len(problems) - 5} more items with faults"] if len(problems) > 5 else []
        raise InputError([*problems[:5], *more])
    return kept
