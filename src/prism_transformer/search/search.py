"""A search: its folder, its records, and where it stands.

    search.yaml  data/  trials.journal  runs/SCHEDULE/tokens-N/seed-K/  results.json  space.svg  space.png

Everything that counts is in the records (storage.py): decision 0 is what the search is, each later one a round, made by
whichever worker saw the one before it ended. So every worker that reads them comes to the same end.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ..data import Corpus
from ..design.guidelines import Device
from ..errors import InputError, RunError
from ..files import SEARCH, write_text
from ..model.head_schedule import HeadSchedule
from ..settings import from_mapping, read_yaml, to_mapping
from ..study.arms import Arm, is_arm_name
from ..training.recipe import Recipe, with_training
from .budget import Budget, Prices, busy_seconds
from .candidates import Candidate, choose
from .elimination import Judged, judge_round, shown_worse
from .ladder import Ladder, Round, RunId, ladder_of
from .recommend import Choice
from .settings import SearchSettings
from .storage import Attempt, Records, open_records, without_password

JOURNAL = "trials.journal"
FORMAT = "prism-transformer search 1"
STORAGE_VARIABLE = "PRISM_SEARCH_STORAGE"
"""Environment variable with the storage's URL, where search.yaml lacks its password."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a search is: decision 0 of its records."""

    id: str
    created: str
    settings: SearchSettings
    recipe: Recipe
    data_fingerprint: str
    candidates: int
    """Schedules that it begins with."""
    speed: float
    """Tokens a second of all workers, measured before the first run."""
    evaluated_tokens: int
    """Of one run."""
    target: Device
    """The device whose limits the recommended schedule should keep."""


@dataclass(frozen=True, kw_only=True)
class SearchFile:
    """The content of search.yaml."""

    format: str = FORMAT
    id: str
    name: str
    storage: str
    """A URL without its password, or a journal file beside this one."""
    data: str
    """The folder of the prepared text, relative to the search's where it lies in it."""

    def write(self, folder: Path) -> None:
        write_text(folder / SEARCH, yaml.safe_dump(to_mapping(self), sort_keys=False))


@dataclass(frozen=True)
class State:
    """Where a search stands, as its records tell it."""

    rounds: Sequence[Round]
    judged: Sequence[Judged]
    """of the rounds of the search that are over"""
    recommended: str | None
    """once the search has ended"""
    attempts: Mapping[RunId, Attempt]
    """the attempt that counts of every run that has one: the first whose worker was not lost"""
    all_attempts: Sequence[Attempt]
    spent: float
    limit: float
    """of the budget, for the present stage"""

    @property
    def current(self) -> Round:
        return self.rounds[-1]

    @property
    def left(self) -> list[RunId]:
        """Runs of this round that nobody has begun, in their order; none where the budget is used up."""
        return [] if self.spent >= self.limit else [run for run in self.current.runs if run not in self.attempts]

    @property
    def is_running(self) -> bool:
        return any(run in self.attempts and self.attempts[run].state == "running" for run in self.current.runs)

    @property
    def is_over(self) -> bool:
        """Whether the present round is."""
        return not self.is_running and not self.left

    @property
    def is_finished(self) -> bool:
        return self.current.stage == "final" and self.is_over

    @property
    def ended(self) -> list[Attempt]:
        """The attempts that count and have a result, of every round."""
        return [each for each in self.attempts.values() if each.state in ("done", "diverged")]

    def losses(self) -> dict[str, dict[int, float | None]]:
        """schedule -> seed -> loss of the schedules of this round, None where a run diverged; only what has ended.

        The seeds of earlier rounds of the same length count: every schedule that is left was trained with them.
        """
        current = self.current
        found: dict[str, dict[int, float | None]] = {name: {} for name in current.schedules}
        for run, attempt in self.attempts.items():
            is_alike = (run.stage, run.tokens) == (current.stage, current.tokens) and run.schedule in found
            if is_alike and attempt.state in ("done", "diverged"):
                found[run.schedule][run.seed] = attempt.loss
        return found


class Search:
    """A search that is open: its plan, its records, and its folder on this machine."""

    def __init__(self, folder: Path, file: SearchFile, records: Records, plan: Plan) -> None:
        self.folder, self.file, self.records, self.plan = folder, file, records, plan

    @classmethod
    def open(cls, folder: Path, storage: str | None = None) -> "Search":
        """The search in `folder`; `storage` is its URL where search.yaml lacks the password. Raises InputError."""
        path = folder / SEARCH
        if not path.exists():
            raise InputError(f"{folder} is no search: it has no {SEARCH}; begin one with `prism search --out {folder}`")
        values = read_yaml(path)
        if values.get("format") != FORMAT:
            raise InputError(f"{path}: format {values.get('format')!r} is not known; {FORMAT!r} is")
        file = from_mapping(SearchFile, values, where=str(path))
        records = open_records(place_of(folder, storage or os.environ.get(STORAGE_VARIABLE) or file.storage), file.name)
        plan = read_plan(records)
        if plan.id != file.id:
            raise InputError(
                f"storage {records.place} holds another search of the name {file.name!r} than {folder} (begun "
                f"{plan.created}): give the storage of this one, or join that one with its own folder"
            )
        return cls(folder, file, records, plan)

    @cached_property
    def candidates(self) -> list[Candidate]:
        settings = self.plan.settings
        return choose(settings.space(self.plan.recipe.model), self.plan.candidates, draw=settings.draw)

    @cached_property
    def ladder(self) -> Ladder:
        return ladder_of(self.plan.recipe, self.plan.settings, self.candidates)

    def schedule(self, name: str) -> HeadSchedule:
        return next(each.schedule for each in self.candidates if each.name == name)

    def run_recipe(self, run: RunId) -> Recipe:
        recipe = with_training(self.plan.recipe, tokens=run.tokens)
        arm = Arm(name=run.schedule, schedule=self.schedule(run.schedule))
        return arm.recipe(recipe, seed=run.seed, lr=recipe.optimizer.lr)

    def run_folder(self, run: RunId) -> Path:
        name = run.schedule if is_arm_name(run.schedule) else self.schedule(run.schedule).fingerprint[:16]
        return self.folder / "runs" / name / f"tokens-{run.tokens}" / f"seed-{run.seed}"

    def open_corpus(self) -> Corpus:
        """The prepared text. Raises InputError where it is not the one that the search began with."""
        corpus = Corpus.open(self.folder / self.file.data, tokenizer=self.plan.recipe.data.named_tokenizer)
        if corpus.fingerprint != self.plan.data_fingerprint:
            raise InputError(f"{corpus.folder} is not the text that the search in {self.folder} began with; restore it")
        return corpus

    def state(self) -> State:
        """Where the search stands now."""
        decisions = self.records.decisions()[1:]
        attempts = self.records.attempts()
        valid: dict[RunId, Attempt] = {}
        for attempt in attempts:
            if attempt.state != "lost":
                valid.setdefault(attempt.run, attempt)
        rounds = [self.ladder.first(), *(from_mapping(Round, each["round"], where="round") for each in decisions)]
        budget = self.ladder.budget
        return State(
            rounds=rounds,
            judged=[from_mapping(Judged, each["judged"], where="judged") for each in decisions],
            recommended=decisions[-1]["recommended"] if decisions else None,
            attempts=valid,
            all_attempts=attempts,
            spent=spent(budget, attempts, time.time()),
            limit=budget.amount if rounds[-1].stage == "final" else self._search_limit(self.prices(attempts)),
        )

    def _search_limit(self, prices: Prices) -> float:
        """What the rounds may take: all but the end; the first round has half of it, where runs prove that slow."""
        amount, first = self.ladder.budget.amount, self.ladder.first()
        whole_round = prices.of(first.tokens, len(first.runs))
        return max(amount - self.ladder.end_price(prices), min(whole_round, amount / 2))

    def prices(self, attempts: Sequence[Attempt]) -> Prices:
        """What a run takes: by the speed of those that have ended, and before that by the one that was measured."""
        unit = self.ladder.budget.unit
        prices = Prices(unit, self.plan.speed, self.plan.evaluated_tokens)
        work = sum(prices.work(each.run.tokens) for each in attempts if each.state == "done")
        seconds = busy_seconds(each.interval(time.time()) for each in attempts)
        return replace(prices, speed=work / seconds) if work and seconds else prices

    def choice(self, in_set: Sequence[Candidate]) -> Choice:
        """What there is to choose from, of `in_set`, best first."""
        return Choice(
            in_set=in_set,
            base_heads=self.plan.recipe.model.heads,
            device=self.plan.target,
            tensor_parallel=self.plan.settings.tensor_parallel,
        )

    def decide(self, state: State) -> None:
        """Judge the round that is over, and decide what comes after it; where others have, theirs counts."""
        number = len(state.rounds)
        judged = judge_round(
            state.losses(),
            number=number,
            baseline=self.candidates[0].name,
            eligible={each.name for each in self.candidates if each.in_space},
            confidence=self.plan.settings.confidence,
        )
        every = [*state.judged, judged]
        if not any(each.leader for each in every):
            raise RunError(
                "no seed of the first round was finished by every schedule: the budget has ended, or uniform itself "
                "diverged; give more budget or lower lr, in another folder (--out)"
            )
        prices = self.prices(state.all_attempts)
        left = self.ladder.budget.amount - state.spent
        following = self.ladder.after(state.rounds, every, left, prices)
        recommended = None
        if following is None:
            recommended = self.choice(best_set(self.candidates, state.rounds, every)).recommended()
            following = self.ladder.final(every, recommended, left, prices)
        value = {"round": to_mapping(following), "judged": to_mapping(judged), "recommended": recommended}
        self.records.decide(number, value)


def best_set(candidates: Sequence[Candidate], rounds: Sequence[Round], judged: Sequence[Judged]) -> list[Candidate]:
    """The schedules of the space that were not shown to be worse than the best, best first."""
    last = rounds[len(judged) - 1].schedules
    behind = shown_worse(judged)
    standing = next(each.standings for each in reversed(judged) if each.leader)

    def loss(candidate: Candidate) -> float:
        found = standing.get(candidate.name)
        return math.inf if found is None or found.loss is None else found.loss

    left = [each for each in candidates if each.in_space and each.name in last and each.name not in behind]
    return sorted(left, key=loss)


def spent(budget: Budget, attempts: Sequence[Attempt], now: float) -> float:
    """What attempts took of a budget: of time, while any was going on; else every run counts once."""
    if budget.unit == "seconds":
        return busy_seconds(each.interval(now) for each in attempts)
    runs = {each.run for each in attempts if each.state != "lost"}
    return float(len(runs) if budget.unit == "runs" else sum(run.tokens for run in runs))


def place_of(folder: Path, storage: str) -> str | Path:
    """A URL as it is; a file's name as the path in the search's folder."""
    return storage if "://" in storage else folder / storage


def read_plan(records: Records) -> Plan:
    """Decision 0. Raises InputError where the storage has no such search."""
    decisions = records.decisions()
    if not decisions:
        raise InputError(
            f"storage {records.place} holds no search of the name {records.name!r}; begin one without --join"
        )
    return plan_from(decisions[0], f"storage {records.place}")


def plan_from(values: Mapping[str, Any], where: str) -> Plan:
    return from_mapping(Plan, values, where=where)


def shown_storage(storage: str | None) -> str:
    """What search.yaml says of a storage."""
    return JOURNAL if storage is None else without_password(storage)
