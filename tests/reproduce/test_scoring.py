"""Which tasks a reproduction can score, where not all of their items are to be had."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.evaluation import zero_shot
from prism_transformer.reproduce.scoring import TASKS, label, open_available


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks whose items are there; a fake of the harness opens those, and names the others."""
    there: list[str] = []

    @contextmanager
    def open_tasks(names: Sequence[str], *, folder: Path | None, say: object) -> Iterator[tuple[str, ...]]:
        if missing := [name for name in names if name not in there]:
            raise InputError([f"the data set of {name} is nowhere" for name in missing])
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
    assert "  the data set of wikitext is nowhere" in said


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


def test_partial_scores_have_a_name_of_their_own() -> None:
    assert (label(None), label(5)) == ("", "-first-5")
