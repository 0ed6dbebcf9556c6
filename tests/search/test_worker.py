"""Workers: every run once, whoever dies; a budget that is kept; the same end for all of them."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.errors import InputError, RunError
from prism_transformer.search.begin import join_search
from prism_transformer.search.search import Search
from prism_transformer.search.storage import Records
from prism_transformer.search.worker import BusyError, work

from .made_up import made_up_loss

Begin = Callable[..., Search]
HERE = Path(__file__).parent


def quiet(sentence: str) -> None:
    pass


class Trainer:
    """Made-up trainings, counted; `seconds` of an invented clock each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 1.0) -> None:
        self.runs: list[Any] = []
        self._now, self._seconds = 1e9, seconds
        monkeypatch.setattr("prism_transformer.search.storage.time.time", lambda: self._now)

    def __call__(self, search: Search, run: Any, corpus: Any, say: Any) -> float | None:
        self.runs.append(run)
        self._now += self._seconds * run.tokens / search.ladder.lengths[-1]
        return made_up_loss(search, run)


def finish(search: Search, trainer: Any) -> Any:
    work(search, train=trainer, say=quiet, wait=0.0)
    return search.state()


def test_a_search_drops_what_is_worse_and_ends_in_the_final_comparison(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6 legal schedules the fewest heads are best: 1x2,4x1, then 1x1,2x1,4x1."""
    search = begin(tmp_path / "s")
    state = finish(search, Trainer(monkeypatch))
    assert state.is_finished and state.recommended is not None
    assert all(each.leader == "1x2,4x1" for each in state.judged)
    assert "2x1,4x2" in state.judged[0].dropped
    assert {"uniform", "1x2,4x1"} < set(state.current.schedules)
    tokens = [each.tokens for each in state.rounds[:-1]]
    assert tokens == sorted(tokens) and tokens[0] == 128


def test_nothing_runs_twice_and_a_finished_search_is_not_touched_again(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(monkeypatch)
    search = begin(tmp_path / "s")
    finish(search, trainer)
    assert max(Counter(trainer.runs).values()) == 1
    before = (tmp_path / "s" / "trials.journal").read_bytes()
    again = begin(tmp_path / "s")
    assert work(again, train=trainer, say=quiet) == 0
    assert (tmp_path / "s" / "trials.journal").read_bytes() == before


@pytest.mark.parametrize("budget", ["97 runs", "25000 tokens", "40s"])
def test_a_budget_is_not_overrun_by_more_than_one_trial(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str
) -> None:
    """Time is the hard one: a full run is priced at about .7 s by the measured speed, and takes 1 s."""
    search = begin(tmp_path / "s", budget=budget)
    state = finish(search, Trainer(monkeypatch))
    one_trial = {"runs": 1, "tokens": 512, "seconds": 1.0}[search.ladder.budget.unit]
    assert state.spent <= search.ladder.budget.amount + one_trial
    assert state.is_finished and state.current.stage == "final"


def test_a_search_whose_runs_are_far_slower_than_measured_still_ends(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = begin(tmp_path / "s", budget="60s")
    state = finish(search, Trainer(monkeypatch, seconds=4.0))
    assert state.is_finished and state.spent <= 64
    assert any(each.seeds for each in state.judged)


def test_a_text_that_was_prepared_elsewhere_is_used_where_it_lies(begin: Begin, tmp_path: Path, tiny: Any) -> None:
    text = begin(tmp_path / "first").open_corpus().folder
    search = begin(tmp_path / "s", recipe=replace(tiny, data=replace(tiny.data, paths=(str(text),))))
    assert search.open_corpus().folder == text and not (tmp_path / "s" / "data").exists()


def test_after_a_refused_beginning_the_corrected_command_begins(begin: Begin, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="budget 5 runs is too small"):
        begin(tmp_path / "s", budget="5 runs")
    assert begin(tmp_path / "s").state().current.stage == "search"


def test_every_run_diverged_is_an_error(begin: Begin, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lower lr"):
        work(begin(tmp_path / "s"), train=lambda *of: None, say=quiet)


def test_a_grid_trains_every_schedule_at_full_length(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(monkeypatch)
    state = finish(begin(tmp_path / "s", method="grid", budget=None), trainer)
    chosen = [run for run in trainer.runs if run.stage == "search"]
    assert len(chosen) == 3 * len(state.rounds[0].schedules) and {run.tokens for run in chosen} == {512}


def test_a_run_whose_folder_is_still_held_is_tried_again(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_transformer.search.worker.WAIT_SECONDS", 0.0)
    made_up = Trainer(monkeypatch)
    held = [BusyError()]

    def train(search: Search, run: Any, corpus: Any, say: Any) -> float | None:
        if held:
            raise held.pop()
        return made_up(search, run, corpus, say)

    state = finish(begin(tmp_path / "s"), train)
    assert state.is_finished and [each.state for each in state.all_attempts].count("lost") == 1


def start(folder: Path, log: Path, seconds: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(HERE / "made_up.py"), str(folder), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def noted(log: Path, what: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[2] for line in lines if line.startswith(what)]


def assert_kills_lose_nothing(search: Search, tmp_path: Path) -> None:
    """Three workers, two of which are killed in the middle of a run; the third ends the search."""
    log = tmp_path / "log"
    workers = [start(search.folder, log, 0.1) for _ in range(3)]
    for number, worker in enumerate(workers[:2], start=1):
        begun = len(noted(log, "begin"))
        while len(noted(log, "begin")) < begun + 6 * number:
            assert worker.poll() is None, worker.stderr and worker.stderr.read().decode()
            time.sleep(0.05)
        worker.kill()
        worker.wait()
    assert workers[2].wait() == 0, workers[2].stderr and workers[2].stderr.read().decode()
    state = search.state()
    assert state.is_finished
    ends = Counter(noted(log, "end"))
    everything = {"/".join(map(str, run)) for each in state.rounds for run in each.runs}
    assert set(ends) == everything  # the runs of the dead were taken up
    lost = [each for each in state.all_attempts if each.state == "lost"]
    again = {name for name, count in ends.items() if count > 1}
    assert again <= {"/".join(map(str, each.run)) for each in lost}  # killed between a run's end and its record
    done = Counter(each.run for each in state.all_attempts if each.state == "done")
    assert set(done.values()) == {1}
    alone = {each.run: each.loss for each in state.all_attempts if each.state == "done"}
    assert all(loss == made_up_loss(search, run) for run, loss in alone.items())


@pytest.mark.slow
def test_workers_killed_on_the_journal_lose_nothing(begin: Begin, tmp_path: Path) -> None:
    assert_kills_lose_nothing(begin(tmp_path / "s", budget="48 runs"), tmp_path)


def test_joining_needs_a_search_and_the_right_one(begin: Begin, tmp_path: Path) -> None:
    def join(place: Path | str, storage: str | None = None, **changes: Any) -> Search:
        options: dict[str, Any] = {"name": "search", "out": None, "data": (), "say": quiet} | changes
        return join_search(str(place), storage=storage, **options)

    url = f"sqlite:///{tmp_path}/trials.db"
    ours = begin(tmp_path / "ours", storage=url)
    begin(tmp_path / "other", storage=url, name="other")
    assert join(tmp_path / "ours").plan == ours.plan
    assert join(url, out=tmp_path / "elsewhere").plan == ours.plan
    with pytest.raises(InputError, match="is no search"):
        join(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no search of the name 'mine'"):
        join(url, out=tmp_path / "mine", name="mine")
    with pytest.raises(InputError, match="needs --out"):
        join(url)
    third = f"sqlite:///{tmp_path}/third.db"
    begin(tmp_path / "third", storage=third)
    with pytest.raises(InputError, match="holds another search of the name 'search'"):
        join(tmp_path / "ours", storage=third)
    with pytest.raises(InputError, match=r"not the text of the search|another"):
        text = tmp_path / "text.txt"
        text.write_text("something else " * 400)
        join(url, out=tmp_path / "wrong text", data=(str(text),))


def test_another_search_in_the_same_place_is_refused_naming_what_differs(
    begin: Begin, tmp_path: Path, tiny: Any
) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    begin(tmp_path / "s", storage=url)
    for folder in (tmp_path / "s", tmp_path / "t"):
        with pytest.raises(InputError, match=r"seeds: 3 -> 4"):
            begin(folder, storage=url, seeds=4)
    wider = replace(tiny, model=replace(tiny.model, d_model=32))
    with pytest.raises(InputError, match=r"model.d_model: 16 -> 32"):
        begin(tmp_path / "s", recipe=wider)


def test_a_text_without_a_test_split_is_refused(begin: Begin, tmp_path: Path, tiny: Any) -> None:
    without = replace(tiny, data=replace(tiny.data, test_share=0.0))
    with pytest.raises(InputError, match="leaves no test split"):
        begin(tmp_path / "s", recipe=without)


def test_a_storage_that_goes_away_ends_the_worker_with_a_sentence(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = begin(tmp_path / "s")

    def gone(self: Records) -> Any:
        return self._guarded(lambda: (_ for _ in ()).throw(OSError("gone")))

    monkeypatch.setattr(Records, "attempts", gone)
    with pytest.raises(RunError, match=r"cannot be reached \(gone\); finished runs are safe"):
        work(search, train=made_up_loss, say=quiet)
