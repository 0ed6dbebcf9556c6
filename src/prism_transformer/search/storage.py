"""The search's records in an Optuna storage: what was decided, and who trains what.

Two Optuna studies of the search's name. In "NAME" a trial is one attempt at one run: it begins RUNNING, as a claim, and
ends COMPLETE with its loss, PRUNED where it diverged, or FAIL where its worker was lost. In "NAME decisions" a trial is
one decision, of which the first of its number counts.

Nothing is locked: a storage numbers what is added one after the other, so of two workers that claim one run, or decide
one thing, at the same moment, both see who was first.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.trial import TrialState, create_trial

from ..errors import InputError, RunError
from .journal import Journal
from .ladder import RunId

T = TypeVar("T")

AttemptState = Literal["running", "done", "diverged", "lost"]
STATES: Mapping[TrialState, AttemptState] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "diverged",
    TrialState.FAIL: "lost",
}
BEAT_SECONDS = 30.0
"""between two signs of life of a worker"""

ATTEMPTS_AT_OPENING = 5
OPENING_PAUSE = 0.5

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run."""

    number: int
    run: RunId
    state: AttemptState
    loss: float | None
    worker: str
    started: float
    beat: float
    """When its worker last gave a sign of life, by its own clock; seconds since 1970."""

    def interval(self, now: float) -> tuple[float, float]:
        """When it was going on: until now, where the last sign is fresh; after its death, until that sign."""
        is_alive = self.state == "running" and now - self.beat < 2 * BEAT_SECONDS
        return self.started, max(self.beat, now) if is_alive else self.beat


class Records:
    """One search's part of a storage."""

    def __init__(self, storage: BaseStorage, name: str, place: str) -> None:
        self._storage, self.name, self.place = storage, name, place
        self._trials = self._study(name)
        self._decisions = self._study(f"{name} decisions")

    def _study(self, name: str) -> optuna.Study:
        def open_or_create() -> optuna.Study:
            try:
                return optuna.load_study(storage=self._storage, study_name=name)
            except KeyError:
                return optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)

        return self._guarded(open_or_create)

    def decisions(self) -> list[dict[str, Any]]:
        """The decisions so far, in order."""
        found: dict[int, dict[str, Any]] = {}
        for trial in self._guarded(lambda: self._decisions.get_trials(deepcopy=False)):
            found.setdefault(trial.user_attrs["decision"], trial.user_attrs["value"])
        return [found[number] for number in sorted(found)]

    def decide(self, number: int, value: Mapping[str, Any]) -> None:
        """Add decision `number`. Where another worker has decided it before, that one counts."""
        trial = create_trial(state=TrialState.PRUNED, user_attrs={"decision": number, "value": dict(value)})
        self._guarded(lambda: self._decisions.add_trial(trial))

    def attempts(self) -> list[Attempt]:
        """Every attempt, the first first."""
        return [_attempt(trial) for trial in self._guarded(lambda: self._trials.get_trials(deepcopy=False))]

    def claim(self, run: RunId, worker: str, token: str) -> int | None:
        """Begin an attempt at `run`: its number, or None where another worker was first. `token` is used once."""
        now = time.time()
        attributes = {**run._asdict(), "worker": worker, "token": token, "started": now, "beat": now}
        trial = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        self._guarded(lambda: self._trials.add_trial(trial))
        trials = self._guarded(lambda: self._trials.get_trials(deepcopy=False))
        mine = next(trial.number for trial in trials if trial.user_attrs["token"] == token)
        earlier = (_attempt(trial) for trial in trials if trial.number < mine)
        if any(each.run == run and each.state != "lost" for each in earlier):
            self.lose(mine)
            return None
        return mine

    def beat(self, number: int) -> None:
        """A sign of life of an attempt's worker."""
        self._guarded(lambda: self._storage.set_trial_user_attr(self._id(number), "beat", time.time()))

    def finish(self, number: int, loss: float | None) -> bool:
        """End an attempt with its loss, None where it diverged; False where others have given it up meanwhile."""
        try:
            self.beat(number)
            state = TrialState.PRUNED if loss is None else TrialState.COMPLETE
            self._guarded(lambda: self._trials.tell(number, loss, state=state))
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):  # ValueError: Optuna's for one that has ended
            return False
        return True

    def lose(self, number: int) -> None:
        """Give an attempt up, whose worker is lost; one that has ended meanwhile stays as it is."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError, ValueError):
            self._guarded(lambda: self._trials.tell(number, state=TrialState.FAIL))

    def _id(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self.name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def _guarded(self, action: Callable[[], T]) -> T:
        """Do it; a storage that cannot be reached any more ends the worker with a sentence."""
        try:
            return action()
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            raise RunError(
                f"storage {self.place} cannot be reached ({_reason(error)}); finished runs are safe, and the same "
                "command goes on"
            ) from None


def open_records(storage: str | Path, name: str) -> Records:
    """The records of search `name` in a journal file (a path) or in the storage of a URL. Raises InputError."""
    if isinstance(storage, Path):
        try:
            return Records(JournalStorage(Journal(storage)), name, str(storage))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"storage {storage} cannot be used as a journal: {_reason(error)}") from None
    place = without_password(storage)
    for attempt in range(ATTEMPTS_AT_OPENING):
        try:
            options = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {"pool_pre_ping": True}
            return Records(RDBStorage(storage, engine_kwargs=options), name, place)
        except ImportError as error:
            raise InputError(f"storage {place}: its driver is missing ({error}); install it with pip") from None
        except (sqlalchemy.exc.SQLAlchemyError, RunError, ValueError, RuntimeError) as error:
            failure: Exception = error
            if isinstance(error, sqlalchemy.exc.ArgumentError) or attempt == ATTEMPTS_AT_OPENING - 1:
                break
            time.sleep(OPENING_PAUSE)  # two workers that create the tables at the same moment disturb each other
    raise InputError(
        f"storage {place} cannot be reached: {_reason(failure)}; check the address, or leave it out for a journal file "
        "in the search's folder"
    )


def without_password(storage: str) -> str:
    """A storage URL as it may be shown and written down. Raises InputError where it is no URL."""
    try:
        url = sqlalchemy.make_url(storage)
    except sqlalchemy.exc.ArgumentError:
        raise InputError(
            f"storage {storage!r} is no URL; write it like postgresql+psycopg://user@host/database or sqlite:///file.db"
        ) from None
    return url._replace(password=None).render_as_string()


def _attempt(trial: optuna.trial.FrozenTrial) -> Attempt:
    values = trial.user_attrs
    run = RunId(values["stage"], values["schedule"], values["tokens"], values["seed"])
    loss = trial.value if trial.state == TrialState.COMPLETE else None
    return Attempt(trial.number, run, STATES[trial.state], loss, values["worker"], values["started"], values["beat"])


def _reason(error: BaseException) -> str:
    """The first line of what a database says."""
    cause = error.__cause__ or error
    return str(getattr(cause, "orig", None) or cause).strip().partition("\n")[0]
