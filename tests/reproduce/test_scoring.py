"""Which tasks a reproduction can score, where not all of their items are to be had."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.evaluation import evaluate, zero_shot
from prism_transformer.evaluation.comparison import ScoredRun
from prism_transformer.evaluation.loading import LoadedModel
from prism_transformer.reproduce import scoring
from prism_transformer.reproduce.scoring import TASKS, open_available, score_study
from prism_transformer.study.folder import Study


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks whose items are there; a fake of the harness opens those. Of several together, of which one
    is missing, it names all, as the harness does."""
    there: list[str] = []

    @contextmanager
    def open_tasks(names: Sequence[str], *, folder: Path | None, say: object) -> Iterator[tuple[str, ...]]:
        if any(name not in there for name in names):
            raise InputError([f"the data set of {name} is nowhere" for name in names])
        yield tuple(names)

    monkeypatch.setattr(zero_shot, "open_tasks", open_tasks)
    return there


def opened(said: list[str]) -> object:
    with open_available(None, said.append) as tasks:
        return tasks


def test_all_of_them_where_all_are_there(items: list[str]) -> None:
    items += TASKS
    said: list[str] = []
    assert (opened(said), said) == (TASKS, [])


def test_those_that_are_there_and_a_word_on_the_others(items: list[str]) -> None:
    items += ["piqa", "blimp"]
    said: list[str] = []
    assert opened(said) == ("piqa", "blimp")
    assert said[0] == "zero-shot: not scored are hellaswag, winogrande, arc_easy, wikitext"
    assert "  the data set of wikitext is nowhere" in said and "  the data set of piqa is nowhere" not in said


def test_none_where_none_is_there(items: list[str]) -> None:
    said: list[str] = []
    assert opened(said) is None
    assert len(said) == 1 + len(TASKS)


def test_an_error_of_the_scoring_itself_is_no_missing_data(items: list[str]) -> None:
    items += TASKS
    said: list[str] = []
    with pytest.raises(InputError, match="damaged"), open_available(None, said.append):
        raise InputError("a damaged checkpoint")
    assert said == []


def test_what_is_kept_of_a_study_is_named_from_the_study(
    trained_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may move, and be scored from any folder."""

    def evaluate_tasks(loaded: LoadedModel, *_: object, **__: object) -> dict[str, ScoredRun]:
        score = {"items": 1, "available": 1, "shots": 0, "version": 1.0, "chance": None, "prompt": {}, "truncated": 0}
        return {"piqa": ScoredRun(arm=loaded.arm, seed=loaded.seed, score={**score, "metrics": {}}, items=[])}

    monkeypatch.setattr(evaluate, "evaluate_tasks", evaluate_tasks)
    monkeypatch.setattr(scoring, "open_available", lambda folder, say: nullcontext(object()))
    shutil.copytree(trained_study, tmp_path / "study")
    monkeypatch.chdir(tmp_path)
    quiet = lambda sentence: None  # noqa: E731
    study = Study.open(Path("study"))
    score_study(study, evaluate.Computation(), folder=None, limit=None, say=quiet, begin=quiet)
    arms = json.loads(Path("study/zero_shot.json").read_text())["piqa"]["arms"]
    places = [f"runs/prism/seed-{seed}/evaluation/step-000012" for seed in (0, 1)]
    assert list(arms) == ["uniform", "prism"] and arms["prism"]["sources"] == places
