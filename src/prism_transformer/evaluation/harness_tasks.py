"""Tasks of lm-evaluation-harness by name, with their items from a local folder, else from the hub's cache or the hub.

For local items a task file is made that includes the harness's own and points to them, so prompts, targets and metrics
stay the harness's. Needs the extra `eval`.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import datasets
import yaml
from huggingface_hub import HfApi
from huggingface_hub import constants as hub_constants
from lm_eval.tasks import TaskManager

from ..errors import InputError
from ..settings import nearest
from .local_data import DataSet, LocalItems, find_items, how_to_fetch

PAPER_TASKS = {
    "hellaswag": "hellaswag",
    "piqa": "piqa",
    "winogrande": "winogrande",
    "blimp": "blimp",
    "arc_easy": "arc",
    "wikitext": "wikitext",
    "lambada_openai": "lambada",
}
"""The paper's tasks, and LAMBADA, with the harness's folder of each; "paper" means all of them."""
REACH_SECONDS = 20
"""How long the hub may take to answer at all."""


@dataclass(frozen=True, kw_only=True)
class LoadedTasks:
    """What the harness evaluates, and where each task's items come from."""

    tasks: Mapping[str, Any]
    groups: Mapping[str, Any]
    members: Mapping[str, Sequence[str]]
    """Of each group."""
    sources: Mapping[str, Mapping[str, Any]]
    """By task: the files and their sha256, or the data set of the hub."""

    @property
    def names(self) -> list[str]:
        """What is scored as one: the groups, and the tasks that are in none."""
        inside = {part for name in self.groups for part in self.parts(name)}
        return [*self.groups, *(name for name in self.tasks if name not in inside)]

    def parts(self, name: str) -> list[str]:
        """The tasks of a group; of a task, itself."""
        group = self.groups.get(name)
        return [task.task_name for task in group.get_all_tasks()] if group else [name]

    def only(self, names: Sequence[str]) -> "LoadedTasks":
        """The part of it that scores these of `names`."""
        tasks = {part: self.tasks[part] for name in names for part in self.parts(name)}
        return replace(self, tasks=tasks, groups={name: self.groups[name] for name in names if name in self.groups})

    def data(self, name: str) -> str:
        """What tells the items of a task from others."""
        sources = [self.sources[part] for part in self.parts(name)]
        stated = json.dumps([source.get("sha256") or source for source in sources], sort_keys=True)
        return hashlib.sha256(stated.encode()).hexdigest()


def load_tasks(
    names: Sequence[str], *, folder: Path | None, scratch: Path, shots: int | None, say: Callable[[str], None]
) -> LoadedTasks:
    """Load tasks, groups or tags by name. `scratch` is an empty folder that must outlive the result.

    Raises InputError for an unknown name (with the nearest), faulty items, and data that is nowhere (with what to
    fetch, and how).
    """
    names = list(dict.fromkeys(each for name in names for each in (PAPER_TASKS if name == "paper" else [name])))
    manager = _manager(names)
    leaves = _leaves(manager, names)
    datasets_of = {name: _data_set(manager, name) for name in leaves}
    local = {
        name: items
        for name, data in datasets_of.items()
        if folder and data and (items := find_items(folder, name, data))
    }
    for name, items in local.items():
        shot_items = _shot_items(manager, name, folder, shots)
        _write_task(manager, name, items, shot_items, datasets_of[name], scratch)
    if local:
        places = {manager.task_index[name].yaml_path.parent for name in [*leaves, *names] if _has_file(manager, name)}
        with quiet_harness():
            manager = TaskManager(include_defaults=False, include_path=[*sorted(places), scratch])
    loaded = _load(manager, names, {k: v for k, v in datasets_of.items() if k not in local}, folder, say)
    _set_shots(loaded["tasks"], shots)
    return LoadedTasks(
        tasks=loaded["tasks"],
        groups=loaded.get("groups", {}),
        members=loaded.get("group_map", {}),
        sources={name: _source(local.get(name), datasets_of.get(name)) for name in loaded["tasks"]},
    )


def _manager(names: Sequence[str]) -> TaskManager:
    """Of the paper's tasks alone where it suffices: reading all of the harness's files takes long."""
    root = Path(str(files("lm_eval"))) / "tasks"
    with quiet_harness():
        manager = TaskManager(include_defaults=False, include_path=[root / folder for folder in PAPER_TASKS.values()])
        if all(name in manager.task_index for name in names):
            return manager
        manager = TaskManager()
    unknown = [name for name in names if name not in manager.task_index]
    if unknown:
        known = {name: get_close_matches(name, ["paper", *PAPER_TASKS], n=1) or manager.all_tasks for name in unknown}
        raise InputError(
            [f"no task {name!r} in lm-evaluation-harness; {nearest(name, known[name])}" for name in unknown]
        )
    return manager


def _leaves(manager: TaskManager, names: Iterable[Any]) -> list[str]:
    """The names of all tasks under groups and tags."""
    found: list[str] = []
    for name in names:
        entry = manager.task_index.get(name) if isinstance(name, str) else None
        if entry is None:
            continue
        if entry.kind.name in ("TASK", "PY_TASK"):
            found.append(name)
        else:
            members = (entry.cfg or {}).get("task", []) if entry.kind.name == "GROUP" else sorted(entry.tags)
            found += _leaves(manager, members if isinstance(members, list) else [])
    return list(dict.fromkeys(found))


def _has_file(manager: TaskManager, name: str) -> bool:
    return name in manager.task_index and manager.task_index[name].yaml_path is not None


def _data_set(manager: TaskManager, name: str) -> DataSet | None:
    config = manager.task_index[name].cfg or {}
    split = config.get("test_split") or config.get("validation_split")
    if "dataset_path" not in config or not split:
        return None
    return DataSet(hub=config["dataset_path"], config=config.get("dataset_name"), split=split)


def _shot_items(manager: TaskManager, name: str, folder: Path | None, shots: int | None) -> LocalItems | None:
    """The training items, from which the examples of a prompt are taken."""
    config = manager.task_index[name].cfg
    if not shots or config.get("num_fewshot") == 0:
        return None
    split = config.get("fewshot_split") or config.get("training_split")
    data = DataSet(hub=config["dataset_path"], config=config.get("dataset_name"), split=split or "train")
    found = find_items(folder, "", data) if folder and split else None
    if found is None:
        raise InputError(
            f"{name}: {shots} shots take their examples from the {data.split} split of {data.hub}, which is not in "
            f"{folder}; {how_to_fetch(folder, data)}"
        )
    return found


def _write_task(
    manager: TaskManager,
    name: str,
    items: LocalItems,
    shot_items: LocalItems | None,
    data: DataSet | None,
    scratch: Path,
) -> None:
    """NAME.yaml in `scratch`: the harness's own task over the local items."""
    assert data is not None
    config = manager.task_index[name].cfg
    splits = {data.split: items} | ({"shots": shot_items} if shot_items else {})
    for split, of_split in splits.items():
        lines = "".join(json.dumps(row, default=str) + "\n" for row in of_split.rows)
        (scratch / f"{name}-{split}.jsonl").write_text(lines, encoding="utf-8")
    task = {
        "include": str(manager.task_index[name].yaml_path),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {
            "data_files": {split: str(scratch / f"{name}-{split}.jsonl") for split in splits},
            "cache_dir": str(scratch / "cache"),
        },
        "training_split": None,
        "fewshot_split": "shots" if shot_items else None,
        **{key: data.split if config.get(key) == data.split else None for key in ("test_split", "validation_split")},
    }
    if items.preprocessed:
        task["process_docs"] = None
    (scratch / f"{name}.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")


def _load(
    manager: TaskManager,
    names: Sequence[str],
    remote: Mapping[str, DataSet | None],
    folder: Path | None,
    say: Callable[[str], None],
) -> Any:
    """Load from what is local or cached; only where that fails, and the hub may be asked, from the hub."""
    was_offline = hub_constants.HF_HUB_OFFLINE
    with quiet_harness():
        try:
            with _offline(True):
                return manager.load(list(names))
        except Exception as error:  # the libraries raise anything here
            if not remote:
                raise
            failed: Exception = error
        sets = sorted({data.hub for data in remote.values() if data})
        if not was_offline:
            say(f"fetching {', '.join(sets)} from the hub, once")
            try:
                HfApi().dataset_info(sets[0], timeout=REACH_SECONDS)  # the load itself would try for minutes
                return manager.load(list(names))
            except Exception as error:
                failed = error
    raise InputError(_not_read({data.hub: data for data in remote.values() if data}, folder, failed)) from None


def _not_read(sets: Mapping[str, DataSet], folder: Path | None, error: Exception) -> list[str]:
    """What to say of sets that were read together: which of them are missing, the libraries do not tell."""
    line = str(error).strip().partition("\n")[0]
    reason = f"{type(error).__name__}: {line[:120]}"
    if len(sets) == 1:
        ((hub, data),) = sets.items()
        return [
            f"the data set {hub} is not {f'in {folder}, nor ' if folder else ''}in the hub's cache, and cannot be "
            f"fetched ({reason}); {how_to_fetch(folder, data)}"
        ]
    return [
        f"the data sets {', '.join(sets)} could not all be read, {f'from {folder}, ' if folder else ''}from the "
        f"hub's cache or from the hub ({reason}); fetch those that are missing",
        *(how_to_fetch(folder, data) for data in sets.values()),
    ]


def _set_shots(tasks: Mapping[str, Any], shots: int | None) -> None:
    """As the harness's own front end does: a task that states 0 keeps it."""
    for task in tasks.values():
        stated = task.get_config("num_fewshot")
        if stated is None or (shots is not None and stated != 0):
            task.set_config(key="num_fewshot", value=shots or 0)
        task.set_fewshot_seed(seed=1234)


def _source(items: LocalItems | None, data: DataSet | None) -> dict[str, Any]:
    if items is not None:
        return {"files": list(items.files), "sha256": items.sha256, "preprocessed": items.preprocessed}
    return {"hub": data.hub if data else None, "config": data.config if data else None}


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """The hub's libraries read these two at each request."""
    before = hub_constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    hub_constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = wanted
    try:
        yield
    finally:
        hub_constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@contextmanager
def quiet_harness() -> Iterator[None]:
    """Keep the libraries' bars and warnings out of the output."""
    logger, had_bars = logging.getLogger("lm_eval"), datasets.are_progress_bars_disabled() is False
    level = logger.level
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if had_bars:
            datasets.enable_progress_bars()
