"""The workers of a search: what they are told, and how their end is told."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.errors import Stopped
from prism_transformer.search import run as run_module
from prism_transformer.search.run import run_search
from prism_transformer.search.search import STORAGE_VARIABLE

SECRET = "postgresql+psycopg://me:secret@host/db"


class FakeWorkers:
    """In the place of `Workers`: notes what the processes would see, and ends as it is told."""

    stopped_by: int | None = None
    seen: dict[str, Any]

    def __init__(self, folder: Path, *, gpus: int, module: str) -> None:
        FakeWorkers.seen = {"storage": os.environ.get(STORAGE_VARIABLE)}

    def __enter__(self) -> "FakeWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watch(self, count: int, on_tick: Callable[[], None], say: Callable[[str], None]) -> None:
        FakeWorkers.seen["count"] = count

    def failure(self, safe: str) -> Exception:
        return RuntimeError(f"failed; {safe}")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorkers]:
    monkeypatch.setattr(run_module, "Workers", FakeWorkers)
    monkeypatch.setattr(FakeWorkers, "stopped_by", None)
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    return FakeWorkers


def test_the_password_reaches_the_workers_by_a_variable_and_stays_nowhere(
    begin: Callable[..., Any], tmp_path: Path, workers: type[FakeWorkers]
) -> None:
    search = begin(tmp_path / "s")
    with pytest.raises(RuntimeError, match="failed; 0 finished runs are safe"):
        run_search(search, storage=SECRET, jobs=3, say=lambda sentence: None)
    assert workers.seen == {"storage": SECRET, "count": 3}
    assert STORAGE_VARIABLE not in os.environ
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file())


def test_a_signal_ends_a_search_with_its_code(
    begin: Callable[..., Any], tmp_path: Path, workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "stopped_by", 75)
    with pytest.raises(Stopped, match="0 finished runs are safe; the same command goes on") as stopped:
        run_search(begin(tmp_path / "s"), jobs=1, say=lambda sentence: None)
    assert stopped.value.exit_code == 75
