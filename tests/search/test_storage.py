"""The records: who was first, what counts, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from prism_transformer.errors import InputError
from prism_transformer.search.journal import Journal
from prism_transformer.search.ladder import RunId
from prism_transformer.search.queue import Queue
from prism_transformer.search.storage import Records, open_records, without_password

RUN = RunId("search", "2x2,4x2", 512, 3)
OTHER = RUN._replace(seed=4)


@pytest.fixture(params=["journal", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    yield tmp_path / "trials.journal" if request.param == "journal" else f"sqlite:///{tmp_path}/trials.db"


def test_what_one_worker_writes_another_reads(place: str | Path) -> None:
    """Two connections: of two decisions and of two claims the first counts; a loss is kept, a lost run free again."""
    ours, theirs = open_records(place, "a"), open_records(place, "a")
    ours.decide(0, {"id": "x"})
    theirs.decide(0, {"id": "y"})
    assert ours.decisions() == theirs.decisions() == [{"id": "x"}]
    first = ours.claim(RUN, "we", "token 1")
    assert first is not None and theirs.claim(RUN, "they", "token 2") is None
    second = theirs.claim(OTHER, "they", "token 3")
    assert second is not None and second != first
    assert ours.finish(first, 3.25)
    theirs.lose(second)
    counted = [each for each in theirs.attempts() if each.worker == "we"]
    assert [(each.run, each.state, each.loss) for each in counted] == [(RUN, "done", 3.25)]
    assert ours.claim(OTHER, "we", "token 4") is not None
    assert theirs.claim(RUN, "they", "token 5") is None  # nothing runs twice
    assert open_records(place, "b").decisions() == []  # another search in the same storage


def test_the_result_of_a_worker_that_was_given_up_does_not_count(place: str | Path) -> None:
    records = open_records(place, "a")
    number = records.claim(RUN, "we", "token")
    assert number is not None
    records.lose(number)
    assert not records.finish(number, 1.0)
    assert [each.state for each in records.attempts()] == ["lost"]


def test_a_diverged_run_has_no_loss_and_is_not_trained_again(place: str | Path) -> None:
    records = open_records(place, "a")
    number = records.claim(RUN, "we", "token")
    assert number is not None and records.finish(number, None)
    assert [(each.state, each.loss) for each in records.attempts()] == [("diverged", None)]
    assert records.claim(RUN, "they", "token 2") is None


def test_optuna_reads_what_was_written(tmp_path: Path) -> None:
    records = open_records(tmp_path / "trials.journal", "a")
    number = records.claim(RUN, "we", "token")
    assert number is not None and records.finish(number, 3.25)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "trials.journal"))
    study = optuna.load_study(study_name="a", storage=optuna.storages.JournalStorage(backend))
    assert study.best_value == 3.25 and study.best_trial.user_attrs["schedule"] == "2x2,4x2"


def test_a_line_that_a_killed_worker_left_unfinished_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "trials.journal"
    open_records(path, "a").decide(0, {"id": "x"})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker')
    records = open_records(path, "a")
    assert records.decisions() == [{"id": "x"}]
    number = records.claim(RUN, "we", "token")
    assert number is not None and open_records(path, "a").attempts()[0].run == RUN
    lines = path.read_bytes().split(b"\n")
    assert path.read_bytes().startswith(whole) and all(json.loads(line) for line in lines if line)


def test_a_long_unfinished_line_is_found_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"a":1}\n' + b"x" * 200_000)
    journal = Journal(path)
    journal.append_logs([{"b": 2}])
    assert path.read_bytes() == b'{"a":1}\n{"b":2}\n'
    assert list(journal.read_logs(0)) == [{"a": 1}, {"b": 2}] and list(journal.read_logs(1)) == [{"b": 2}]


def test_a_file_of_nothing_but_an_unfinished_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"xxx")
    Journal(path).append_logs([{"b": 2}])
    assert path.read_bytes() == b'{"b":2}\n'


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql+psycopg://user:secret@127.0.0.1:1/db", "cannot be reached"),
        ("nonsense", "is no URL"),
        ("oracle+cx_nothing://host/db", "storage oracle+cx_nothing://host/db"),
        ("sqlite:////no/such/folder/x.db", "cannot be reached"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_named_without_its_password(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_transformer.search.storage.OPENING_PAUSE", 0.0)
    with pytest.raises(InputError) as error:
        open_records(url, "a")
    assert said in str(error.value) and "secret" not in str(error.value)


def test_a_journal_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.journal"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="cannot be used as a journal"):
        open_records(path, "a")


def test_passwords_are_not_written_down() -> None:
    assert without_password("postgresql+psycopg://me:secret@host/db") == "postgresql+psycopg://me@host/db"


def records_in(folder: Path) -> Records:
    return open_records(folder / "trials.journal", "a")


def test_a_worker_that_lives_keeps_its_run_and_one_whose_lock_is_free_loses_it(tmp_path: Path) -> None:
    ours, theirs = Queue(records_in(tmp_path), tmp_path), Queue(records_in(tmp_path), tmp_path)
    with ours:
        theirs.__enter__()
        assert theirs.claim(RUN) is not None
        assert not ours.take_up_lost(ours.records.attempts())
        theirs._lock.release()  # as the system does when a process dies
        assert ours.take_up_lost(ours.records.attempts())
        assert ours.claim(RUN) is not None


def test_a_worker_that_stops_gives_its_runs_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Queue(records_in(tmp_path), tmp_path) as queue:
        queue.claim(RUN)
        raise KeyboardInterrupt
    assert [each.state for each in records_in(tmp_path).attempts()] == ["lost"]


def test_of_a_worker_elsewhere_only_its_signs_of_life_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock of another machine is read: a sign that has not changed for `silent` seconds of our own clock."""
    now = [0.0]
    monkeypatch.setattr("prism_transformer.search.queue.time.monotonic", lambda: now[0])
    records = records_in(tmp_path)
    number = records.claim(RUN, "a worker of another machine", "token")
    assert number is not None
    queue = Queue(records, tmp_path / "ours", silent=300)

    def is_taken_up(at: float) -> bool:
        now[0] = at
        return queue.take_up_lost(records.attempts())

    assert not is_taken_up(0) and not is_taken_up(299)
    records.beat(number)
    assert not is_taken_up(400) and not is_taken_up(699)
    assert is_taken_up(701)
    assert [each.state for each in records.attempts()] == ["lost"]


def test_signs_of_life_are_given_while_a_run_is_trained(tmp_path: Path) -> None:
    with Queue(records_in(tmp_path), tmp_path, beat=0.01) as queue:
        number = queue.claim(RUN)
        assert number is not None
        before = queue.records.attempts()[0].beat
        with queue.alive(number):
            for _ in range(2000):
                if queue.records.attempts()[0].beat > before:
                    break
        assert queue.records.attempts()[0].beat > before
