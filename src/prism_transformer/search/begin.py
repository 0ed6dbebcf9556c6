"""The beginning of a search: everything checked, its price measured and said, its records opened."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import Corpus
from ..design.guidelines import Device
from ..errors import InputError
from ..files import DATA, SEARCH, path_from, refuse_foreign
from ..settings import differences, to_mapping
from ..study.compare import prepared_text
from ..study.estimate import SpeedSource, about, duration, evaluated_tokens
from ..study.plan import StudySettings
from ..study.runner import job_count
from ..training.recipe import DeviceSettings, Recipe
from ..training.text import data_sentences
from ..wording import count
from .budget import Prices
from .candidates import Candidate, choose, references, total
from .ladder import Ladder, affordable, ladder_of
from .settings import SearchSettings

if TYPE_CHECKING:
    from .search import Plan, Search


MUCH_EVALUATION = 1 / 4
"""of a search's time: more of it is worth a word"""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A search before it begins: its first schedules, and what it takes on this device."""

    ladder: Ladder
    prices: Prices
    speed_source: SpeedSource
    space_size: int
    jobs: int

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self.ladder.candidates

    def mapping(self) -> dict[str, Any]:
        ladder, prices = self.ladder, self.prices
        rounds = ladder.planned()
        seconds = replace(prices, unit="seconds")
        return {
            "space": self.space_size,
            "schedules": {each.name: str(each.schedule) for each in self.candidates},
            "rounds": [{"tokens": tokens, "runs": runs} for tokens, runs in rounds],
            "budget": {"unit": ladder.budget.unit, "amount": ladder.budget.words()},
            "tokens": int(ladder.planned_price(replace(prices, unit="tokens"))),
            "runs": int(ladder.planned_price(replace(prices, unit="runs"))),
            "seconds": ladder.planned_price(seconds),
            "seconds_of_one_run": seconds.of(ladder.lengths[-1]),
            "tokens_per_second": prices.speed,
            "speed_source": self.speed_source,
            "jobs": self.jobs,
        }


def check(recipe: Recipe, settings: SearchSettings) -> list[Candidate]:
    """The references, once everything that needs neither text nor device is known to be right.

    Raises InputError with every problem.
    """
    problems: list[str] = []
    found: list[Candidate] = []

    def of_space() -> None:
        found.extend(references(settings.space(recipe.model)))
        ladder_of(recipe, settings, found)

    if recipe.data.test_share == 0:
        problems.append(
            "test_share=0 leaves no test split, on which the end of a search is judged; the default is 0.05"
        )
    for part in (settings.check, recipe.check, of_space):
        try:
            part()
        except InputError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise InputError(problems)
    return found


def price(
    recipe: Recipe, settings: SearchSettings, *, vocab_size: int, validation_tokens: int | None, jobs: int | None
) -> Priced:
    """Measure the device for some seconds, and fit the search to its budget. Raises InputError where nothing fits."""
    from ..study.speed import training_speed  # imports torch

    found = check(recipe, settings)
    space = settings.space(recipe.model)
    jobs = job_count(StudySettings(jobs=jobs), recipe.device)
    ladder = ladder_of(recipe, settings, found)
    speed = training_speed(recipe, vocab_size)
    evaluated = evaluated_tokens(recipe, validation_tokens)
    prices = Prices(ladder.budget.unit, speed.tokens_per_second * jobs, evaluated)
    if settings.method == "grid":
        tried = total(space)
    else:
        tried = affordable(ladder, prices, total(space)) if settings.candidates is None else settings.candidates
    ladder = replace(ladder, candidates=choose(space, tried, draw=settings.draw))
    affordable(ladder, prices, len(ladder.candidates))  # a number that the user gave, or a whole grid
    return Priced(ladder=ladder, prices=prices, speed_source=speed.source, space_size=space.count, jobs=jobs)


def describe(priced: Priced, settings: SearchSettings) -> list[str]:
    """The plan in sentences."""
    ladder, prices, budget = priced.ladder, priced.prices, priced.ladder.budget
    outside = sum(not each.in_space for each in ladder.candidates)
    inside = len(ladder.candidates) - outside
    tried = "all are tried" if inside == priced.space_size else f"{inside:,} are tried, drawn from them"
    beside = f"; beside them {count(outside, 'reference')} outside of it" if outside else ""
    lines = [f"space: {count(priced.space_size, 'legal schedule')}, {tried}{beside}"]
    for k, (tokens, runs) in enumerate(ladder.planned(), start=1):
        which = "round 1" if k == 1 else f"round {k}, if half are dropped"
        lines.append(f"{which}: {count(runs, 'run')} of {tokens:,} tokens")
    if settings.method == "halving":
        last = ladder.undropped(prices)
        lines.append(f"if none is dropped: round {len(last)} is the last, of {last[-1].tokens:,} tokens a run")
    seconds = replace(prices, unit="seconds")
    lines.append(
        f"end: at the most {ladder.end_price(replace(prices, unit='runs')):.0f} runs of {ladder.lengths[-1]:,} tokens, "
        f"{settings.final_seeds} fresh seeds, on the test split; up to twice the seeds where the budget has room"
    )
    whole = ladder.planned_price(replace(prices, unit="tokens"))
    time = f"{about(priced.speed_source)} {duration(ladder.planned_price(seconds))}"
    lines.append(
        f"cost: about {whole:,.0f} tokens; {time}, at {prices.speed:,.0f} tokens/s, {priced.speed_source}; "
        f"budget {budget.words()}"
    )
    share = 1 - whole / (ladder.planned_price(seconds) * prices.speed)
    if share > MUCH_EVALUATION:
        lines.append(
            f"evaluation: {share:.0%} of that time, for {prices.evaluated_tokens:,} tokens with each run; a smaller "
            "--held-out-bytes leaves more for training"
        )
    return lines


def open_search(
    recipe: Recipe,
    out: Path,
    *,
    settings: SearchSettings,
    storage: str | None,
    name: str,
    jobs: int | None,
    say: Callable[[str], None],
) -> "Search":
    """Begin a search in the folder `out`, or go on with the one that is there. Raises InputError."""
    from .search import JOURNAL, Plan, Search, SearchFile, place_of, plan_from, shown_storage
    from .storage import open_records

    check(recipe, settings)
    refuse_foreign(out, mark=SEARCH, beside=(DATA, JOURNAL))  # which a beginning that was killed may have left
    if (out / SEARCH).exists():
        search = Search.open(out, storage)
        _refuse_differences(search.plan, recipe, settings, str(out))
        return search
    records = None if storage is None else open_records(storage, name)  # an address is checked before the text is read
    corpus = _prepared(recipe, out, say)
    if records is None:
        records = open_records(place_of(out, JOURNAL), name)
    if not records.decisions():
        validation = len(corpus.split("validation"))
        priced = price(recipe, settings, vocab_size=corpus.vocab_size, validation_tokens=validation, jobs=jobs)
        for line in describe(priced, settings):
            say(line)
        plan = Plan(
            id=uuid.uuid4().hex,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=settings,
            recipe=recipe,
            data_fingerprint=corpus.fingerprint,
            candidates=len(priced.candidates),
            speed=priced.prices.speed,
            evaluated_tokens=priced.prices.evaluated_tokens,
            target=_target(settings, recipe.device),
        )
        records.decide(0, to_mapping(plan))
    plan = plan_from(records.decisions()[0], f"storage {records.place}")
    _refuse_differences(plan, recipe, settings, f"storage {records.place}, under the name {name!r},", corpus)
    file = SearchFile(id=plan.id, name=name, storage=shown_storage(storage), data=path_from(out, corpus.folder))
    file.write(out)
    return Search(out, file, records, plan)


def join_search(
    place: str, *, storage: str | None, name: str, out: Path | None, data: tuple[str, ...], say: Callable[[str], None]
) -> "Search":
    """Open a search that others have begun: by its folder, or by the URL of its storage, with a folder of one's own."""
    from .search import Search, SearchFile, read_plan, shown_storage
    from .storage import open_records

    if "://" not in place:
        return Search.open(Path(place), storage)
    if out is None:
        raise InputError("--join with the address of a storage needs --out, a folder on this machine")
    refuse_foreign(out, mark=SEARCH, beside=(DATA,))
    if (out / SEARCH).exists():
        return Search.open(out, place)
    records = open_records(place, name)
    plan = read_plan(records)
    recipe = plan.recipe
    if data:
        recipe = replace(recipe, data=replace(recipe.data, paths=data))
    corpus = _prepared(recipe, out, say)
    if corpus.fingerprint != plan.data_fingerprint:
        raise InputError(
            f"{corpus.folder} is not the text of the search in {records.place}: give the same text (--data), or the "
            "folder in which it was prepared"
        )
    file = SearchFile(id=plan.id, name=name, storage=shown_storage(place), data=path_from(out, corpus.folder))
    file.write(out)
    return Search(out, file, records, plan)


def _prepared(recipe: Recipe, out: Path, say: Callable[[str], None]) -> Corpus:
    corpus = prepared_text(recipe, out / DATA, mark=SEARCH, say=say)
    if len(corpus.split("test")) < 2:
        raise InputError(f"{corpus.folder} has no test split, on which the end of a search is judged; prepare it anew")
    for sentence in data_sentences(recipe, corpus):
        say(sentence)
    out.mkdir(parents=True, exist_ok=True)  # which a text that was prepared elsewhere has not made
    return corpus


def _refuse_differences(
    plan: "Plan", recipe: Recipe, settings: SearchSettings, place: str, corpus: Corpus | None = None
) -> None:
    """Raise InputError naming every setting of a search that is not as it was."""
    old, new = to_mapping(plan.recipe), to_mapping(recipe)
    del old["data"], new["data"]  # what was read is the fingerprint, not where it lay
    changed = differences(old, new) + differences(to_mapping(plan.settings), to_mapping(settings))
    if corpus is not None and corpus.fingerprint != plan.data_fingerprint:
        changed.append("the text is another")
    if changed:
        lines = "\n  ".join(changed)
        raise InputError(
            f"{place} holds a search with other settings; use another --out (and --name), or join it with --join:\n"
            f"  {lines}"
        )


def _target(settings: SearchSettings, device: DeviceSettings) -> Device:
    """The device whose limits count: as asked, or the one that the search runs on."""
    if settings.target != "auto":
        return settings.target
    from ..training.device import choose_device  # imports torch

    kind = choose_device(device).device
    if kind.type != "cuda":
        return "mps" if kind.type == "mps" else "cpu"
    import torch

    major, minor = torch.cuda.get_device_capability(kind)
    return "cuda-consumer" if major == 12 or (major == 8 and minor in (6, 7, 8, 9)) else "cuda"
