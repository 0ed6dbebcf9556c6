"""FineWeb from a folder in the hub's layout: every document once, whatever ends the process."""

import hashlib
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import datasets
import pytest

from prism_transformer.data import SPLITS, Corpus, fineweb, fineweb_network
from prism_transformer.data.fineweb import FineWebSettings, prepare_fineweb
from prism_transformer.data.fineweb_units import Units
from prism_transformer.data.tokenizer import load_tokenizer
from prism_transformer.errors import InputError, RunError

sys.path.insert(0, str(Path(__file__).parent))
import fineweb_hub

TOKENS = "8K"
"""about two thirds of the text"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fineweb_hub.make_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="module", autouse=True)
def small_units() -> Iterator[None]:
    """Units of a hundred documents; the tokenizer is read once."""
    tokenizer = load_tokenizer("gpt2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fineweb, "UNIT_TOKENS", 1500)
        patch.setattr(fineweb, "BATCH_CHARACTERS", 1500)
        patch.setattr(fineweb, "load_tokenizer", lambda name: tokenizer)
        yield


@pytest.fixture
def settings(hub: Path) -> FineWebSettings:
    return FineWebSettings(tokens=TOKENS, source=str(hub), **fineweb_hub.SETTINGS)


def quiet(sentence: str) -> None:
    """For tests that do not look at what is said."""


@pytest.fixture(scope="module")
def unbroken(hub: Path, small_units: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a command that nothing ends makes of it. Do not write into it."""
    out = tmp_path_factory.mktemp("unbroken") / "out"
    prepare_fineweb(FineWebSettings(tokens=TOKENS, source=str(hub), **fineweb_hub.SETTINGS), out, say=quiet)
    return out


def contents(folder: Path) -> dict[str, str]:
    """Every file of a corpus by name, hashed."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def documents(corpus: Corpus) -> dict[str, list[str]]:
    found = {}
    for name in SPLITS:
        stream = corpus.split(name)
        ids = stream.read(0, len(stream))
        edges = [*stream.document_starts.tolist(), len(stream)]
        assert all(ids[edge] == 50256 for edge in edges[:-1])
        found[name] = [corpus.tokenizer.decode(ids[a + 1 : b]) for a, b in pairwise(edges)]
    return found


def test_the_first_documents_are_there_once_and_in_order(unbroken: Path) -> None:
    found = documents(Corpus.open(unbroken))
    written = [text for text in fineweb_hub.texts() if not text.isspace()]
    total = sum(map(len, found.values()))
    assert 0 < total < len(written)
    assert sorted(itertools.chain(*found.values())) == sorted(written[:total])
    places = {text: place for place, text in enumerate(written)}
    for of_split in found.values():
        order = [places[text] for text in of_split if text != fineweb_hub.texts()[7]]  # which is there twice
        assert order and order == sorted(order)


def test_as_many_tokens_as_were_asked_for_and_no_batch_more(unbroken: Path) -> None:
    corpus = Corpus.open(unbroken)
    assert 8000 <= len(corpus.split("train")) < 8000 + 1500
    assert corpus.manifest is not None
    counts = corpus.manifest.counts
    assert counts.documents == sum(len(texts) for texts in documents(corpus).values())
    assert counts.documents_empty == sum(
        text.isspace() for text in fineweb_hub.texts()[: counts.documents + counts.documents_empty]
    )


def test_equal_texts_fall_into_one_split(settings: FineWebSettings, tmp_path: Path) -> None:
    found = documents(prepare_fineweb(replace(settings, tokens="1M"), tmp_path / "out", say=quiet))
    twice = fineweb_hub.texts()[7]
    assert sorted(texts.count(twice) for texts in found.values()) == [0, 0, 2]


def test_a_subset_that_ends_early_is_kept_and_said(settings: FineWebSettings, tmp_path: Path) -> None:
    said: list[str] = []
    found = documents(prepare_fineweb(replace(settings, tokens="1M"), tmp_path / "out", say=said.append))
    assert sum(map(len, found.values())) == sum(not text.isspace() for text in fineweb_hub.texts())
    assert "were asked for" in said[-1]


@pytest.mark.slow
def test_kill_9_at_any_moment_neither_repeats_nor_loses_a_document(hub: Path, unbroken: Path, tmp_path: Path) -> None:
    """Killed when the first unit is there, again after the fourth, then let to end."""
    out, script = tmp_path / "out", Path(fineweb_hub.__file__)
    for wanted in (1, 4):
        process = subprocess.Popen([sys.executable, str(script), str(hub), str(out), TOKENS])
        while process.poll() is None and len(list((out / ".partial").glob("unit-*"))) < wanted:
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
    subprocess.run([sys.executable, str(script), str(hub), str(out), TOKENS], check=True)
    assert contents(out) == contents(unbroken)


class Killed(BaseException):
    """What no handler takes for an error, as a kill is none."""


@pytest.mark.parametrize("nth", [0, 2, 7, 9, 20, 31, 36])
def test_ended_at_any_rename_it_goes_on_to_the_same_corpus(
    settings: FineWebSettings, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Commits, merging and publication are renames; the process ends before the `nth` of them."""
    left = itertools.count(nth, -1)
    rename, replace = Path.rename, Path.replace

    def dying(self: Path, target: Path, how=rename) -> Path:
        if next(left) == 0:
            raise Killed
        return how(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    monkeypatch.setattr(Path, "replace", lambda self, target: dying(self, target, replace))
    with pytest.raises(Killed):
        prepare_fineweb(settings, tmp_path / "out", say=quiet)
    monkeypatch.undo()
    prepare_fineweb(settings, tmp_path / "out", say=quiet)
    assert contents(tmp_path / "out") == contents(unbroken)


def test_ended_while_the_units_are_deleted_it_goes_on_to_the_same_corpus(
    settings: FineWebSettings, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmtree = shutil.rmtree

    def dying(place: Path, **rest: bool) -> None:
        if Path(place).name == "unit-000001":
            (place / "unit.json").unlink()
            raise Killed
        rmtree(place, **rest)

    monkeypatch.setattr(shutil, "rmtree", dying)
    with pytest.raises(Killed):
        prepare_fineweb(settings, tmp_path / "out", say=quiet)
    monkeypatch.undo()
    prepare_fineweb(settings, tmp_path / "out", say=quiet)
    assert contents(tmp_path / "out") == contents(unbroken)


def test_a_finished_folder_is_opened_and_another_wish_refused(
    settings: FineWebSettings, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(unbroken)
    monkeypatch.setattr(fineweb, "load_tokenizer", None)  # nothing is encoded again
    assert prepare_fineweb(settings, unbroken, say=quiet).fingerprint == Corpus.open(unbroken).fingerprint
    with pytest.raises(InputError, match="tokens: 8000 -> 9000"):
        prepare_fineweb(replace(settings, tokens="9K"), unbroken, say=quiet)
    assert contents(unbroken) == before


def test_a_folder_that_waits_to_be_published_refuses_other_settings(
    settings: FineWebSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is written, and the process dies before it is in its place."""
    with monkeypatch.context() as patched:
        patched.setattr(fineweb, "publish", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            prepare_fineweb(settings, tmp_path / "out", say=quiet)
    with pytest.raises(InputError, match="begun with other settings"):
        prepare_fineweb(replace(settings, tokens="1M"), tmp_path / "out", say=quiet)
    assert len(prepare_fineweb(settings, tmp_path / "out", say=quiet).split("train")) > 0


def test_a_begun_folder_refuses_other_settings(
    settings: FineWebSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Units.commit

    def commit_and_die(self: Units, *arguments: object) -> None:
        commit(self, *arguments)
        raise Killed

    monkeypatch.setattr(Units, "commit", commit_and_die)
    with pytest.raises(Killed):
        prepare_fineweb(settings, tmp_path / "out", say=quiet)
    with pytest.raises(InputError, match=r"validation_share: 0\.1 -> 0\.2"):
        prepare_fineweb(replace(settings, validation_share=0.2), tmp_path / "out", say=quiet)


def test_a_broken_connection_is_waited_out(
    hub: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub stands in as a folder that breaks off behind every 50th document, then at every attempt."""
    load, given = datasets.load_dataset, itertools.count(1)

    class Breaking:
        def __init__(self, rows: datasets.IterableDataset) -> None:
            self._rows = rows

        def select_columns(self, names: list[str]) -> "Breaking":
            return Breaking(self._rows.select_columns(names))

        def __iter__(self):
            rows = iter(self._rows)
            while True:
                if next(given) % 50 == 0:
                    raise ConnectionError("reset by peer")
                try:
                    row = next(rows)
                except StopIteration:
                    return
                yield row

        def state_dict(self) -> dict[str, object]:
            return self._rows.state_dict()

        def load_state_dict(self, state: dict[str, object]) -> None:
            self._rows.load_state_dict(state)

    monkeypatch.setattr(datasets, "load_dataset", lambda path, **rest: Breaking(load(str(hub), **rest)))
    monkeypatch.setattr(fineweb, "resolve_revision", lambda *_, **__: "abc")
    waits: list[float] = []
    monkeypatch.setattr(fineweb_network.time, "sleep", waits.append)
    settings = FineWebSettings(tokens=TOKENS, source="owner/name", **fineweb_hub.SETTINGS)
    corpus = prepare_fineweb(settings, tmp_path / "out", say=quiet)
    assert documents(corpus) == documents(Corpus.open(unbroken))
    assert waits and set(waits) == {1.0}
    assert corpus.manifest is not None and corpus.manifest.settings["revision"] == "abc"


def test_a_connection_that_stays_away_ends_in_a_sentence_after_two_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(path: str, **rest: object) -> None:
        raise ConnectionError("no route")

    waits: list[float] = []
    monkeypatch.setattr(fineweb_network.time, "sleep", waits.append)
    monkeypatch.setattr(datasets, "load_dataset", never)
    monkeypatch.setattr(fineweb, "resolve_revision", lambda *_, **__: "abc")
    with pytest.raises(RunError, match=r"8 times in a row \(ConnectionError: no route\).*goes on"):
        prepare_fineweb(FineWebSettings(source="owner/name"), tmp_path / "out", say=quiet)
    assert waits == [1, 2, 4, 8, 16, 32, 64]


def test_everything_wrong_is_named_at_once_and_nothing_is_left(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        prepare_fineweb(FineWebSettings(tokens="many", validation_share=2, test_share=-1), tmp_path / "out", say=quiet)
    assert len(caught.value.problems) == 3
    with pytest.raises(InputError, match=r"sample/9BT.*sample-10BT, sample-100BT"):
        prepare_fineweb(FineWebSettings(subset="sample-9BT", source=str(hub)), tmp_path / "out", say=quiet)
    assert not (tmp_path / "out").exists()


def test_the_disk_is_looked_at_first(settings: FineWebSettings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"2,300,000\.0 GB are needed"):
        prepare_fineweb(replace(settings, tokens="1000T"), tmp_path / "out", say=quiet)
    assert not (tmp_path / "out").exists()
