"""FineWeb's ready shards from a folder that holds its files."""

import hashlib
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from prism_transformer.data import Corpus, fineweb_network, fineweb_shards
from prism_transformer.data.fineweb_shards import FineWebShardSettings, prepare_fineweb_shards
from prism_transformer.errors import InputError, RunError

TOKENS = 1000
"""of a shard in these tests"""


def write_shard(path: Path, tokens: int = TOKENS, *, magic: int = 20240520, stated: int | None = None) -> None:
    """As modded-nanogpt's data set has them: 256 int32 of header (magic, version, count), then uint16 ids."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, 1, tokens if stated is None else stated
    ids = np.arange(tokens, dtype="<u2") % 50257
    ids[0] = 50256
    path.write_bytes(header.tobytes() + ids.tobytes())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A validation shard and four of training, the last one short."""
    monkeypatch.setattr(fineweb_shards, "SHARD_TOKENS", TOKENS)
    monkeypatch.setattr(fineweb_shards, "SHARDS", 4)
    folder = tmp_path / "hub"
    folder.mkdir()
    write_shard(folder / "fineweb_val_000000.bin")
    for number in range(1, 5):
        write_shard(folder / f"fineweb_train_{number:06d}.bin", TOKENS if number < 4 else 400)
    return folder


def quiet(sentence: str) -> None:
    """For tests that do not look at what is said."""


def settings(hub: Path, tokens: str = "2K") -> FineWebShardSettings:
    return FineWebShardSettings(tokens=tokens, source=str(hub))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_as_many_whole_shards_as_the_tokens_take(hub: Path, tmp_path: Path) -> None:
    said: list[str] = []
    corpus = prepare_fineweb_shards(settings(hub, "1.1K"), tmp_path / "out", say=said.append)
    train = [f"fineweb_train_{number:06d}.bin" for number in (1, 2)]
    assert names(tmp_path / "out") == [*train, "fineweb_val_000000.bin", "source.json"]
    assert (len(corpus.split("train")), len(corpus.split("validation"))) == (2000, 1000)
    assert corpus.tokenizer.name == "gpt2"
    assert said[0].startswith("disk: ") and said[-1] == "tokens: 2,000 train, 1,000 validation"


def test_more_than_there_is_takes_all_and_says_what_medium_takes(hub: Path, tmp_path: Path) -> None:
    said: list[str] = []
    corpus = prepare_fineweb_shards(settings(hub, "10.49B"), tmp_path / "out", say=said.append)
    assert len(corpus.split("train")) == 3400
    assert "3,400 tokens" in said[-1] and "10,490,000,000" in said[-1] and "10,485,760,000" in said[-1]


def test_the_hundred_and_three_shards_are_enough_for_small_and_short_of_medium() -> None:
    """103 x 100M tokens; the paper's runs take 2.88B and 10.49B."""
    assert fineweb_shards.SHARDS * 100_000_000 == 10_300_000_000
    assert fineweb_shards._shard_count(FineWebShardSettings(tokens="2.9B")) == 29
    assert fineweb_shards._shard_count(FineWebShardSettings(tokens="10.49B")) == 103


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda path: write_shard(path, magic=7), "no header of a shard|no whole number"),
        (lambda path: write_shard(path, stated=TOKENS + 1), "its header says 1,001 tokens"),
        (lambda path: write_shard(path, TOKENS + 1), "1,000 at most"),
        (lambda path: path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff"), "token 999 has id 65535"),
        (lambda path: path.unlink(), "has no fineweb_train_000002.bin"),
    ],
)
def test_a_shard_with_a_fault_is_named_and_what_was_right_is_kept(
    hub: Path, tmp_path: Path, fault, expected: str
) -> None:
    fault(hub / "fineweb_train_000002.bin")
    with pytest.raises(InputError, match=expected) as caught:
        prepare_fineweb_shards(settings(hub), tmp_path / "out", say=quiet)
    assert "fineweb_train_000002" in str(caught.value)
    assert names(tmp_path / "out") == [".partial"]
    write_shard(hub / "fineweb_train_000002.bin")
    said: list[str] = []
    corpus = prepare_fineweb_shards(settings(hub), tmp_path / "out", say=said.append)
    assert len(corpus.split("train")) == 2000
    assert [sentence for sentence in said if "/" in sentence and "bin" in sentence] == [
        "[1/1] fineweb_train_000002.bin"
    ]


def test_again_changes_nothing_and_another_wish_is_refused(hub: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = prepare_fineweb_shards(settings(hub), out, say=quiet)
    for path in hub.iterdir():
        path.unlink()
    assert prepare_fineweb_shards(settings(hub), out, say=quiet).fingerprint == first.fingerprint
    with pytest.raises(InputError, match="shards was 3, is now 4"):
        prepare_fineweb_shards(settings(hub, "3K"), out, say=quiet)


class Killed(BaseException):
    """What no handler takes for an error, as a kill is none."""


def test_a_begun_folder_takes_no_other_shards(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended behind the third of five: 1K are two of them, and another source's would stand under its name."""
    out, check, left = tmp_path / "out", fineweb_shards._check, itertools.count(3, -1)

    def dying(path: Path, name: str) -> None:
        if next(left) == 0:
            raise Killed
        check(path, name)

    monkeypatch.setattr(fineweb_shards, "_check", dying)
    with pytest.raises(Killed):
        prepare_fineweb_shards(settings(hub, "4K"), out, say=quiet)
    monkeypatch.setattr(fineweb_shards, "_check", check)
    with pytest.raises(InputError, match="shards was 5, is now 2"):
        prepare_fineweb_shards(settings(hub, "1K"), out, say=quiet)
    other = shutil.copytree(hub, tmp_path / "other")
    with pytest.raises(InputError, match=r"source was .*hub, is now .*other"):
        prepare_fineweb_shards(settings(other, "4K"), out, say=quiet)
    assert len(prepare_fineweb_shards(settings(hub, "4K"), out, say=quiet).split("train")) == 3400
    assert sorted(json.loads((out / "source.json").read_text())["files"]) == sorted(path.name for path in hub.iterdir())


def test_a_folder_that_is_half_published_takes_no_other_shards(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, replace = tmp_path / "out", Path.replace

    def dying(self: Path, target: Path) -> Path:
        if self.name == "fineweb_train_000002.bin":
            raise Killed
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(Killed):
        prepare_fineweb_shards(settings(hub, "2K"), out, say=quiet)
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(InputError, match="shards was 3, is now 2"):
        prepare_fineweb_shards(settings(hub, "1K"), out, say=quiet)
    assert len(prepare_fineweb_shards(settings(hub, "2K"), out, say=quiet).split("train")) == 2000


def test_a_source_that_gave_no_shard_is_forgotten(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no fineweb_val_000000\.bin"):
        prepare_fineweb_shards(settings(tmp_path / "empty"), tmp_path / "out", say=quiet)
    assert len(prepare_fineweb_shards(settings(hub), tmp_path / "out", say=quiet).split("train")) == 2000


class Hub:
    """The hub as fsspec sees it, over a folder: sizes and sha256 by name, and connections that break."""

    def __init__(self, folder: Path, failures: int) -> None:
        self._folder, self._failures = folder, failures
        self.asked: list[str] = []

    def get_file(self, name: str, target: str) -> None:
        self.asked.append(name)
        content = (self._folder / Path(name).name).read_bytes()
        if self._failures > 0:
            self._failures -= 1
            Path(target).write_bytes(content[:-100])  # broken off, and no error from below
            return
        Path(target).write_bytes(content)

    def info(self, name: str) -> dict[str, object]:
        content = (self._folder / Path(name).name).read_bytes()
        return {"size": len(content), "lfs": {"sha256": hashlib.sha256(content).hexdigest()}}


def fetch_from(fake: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> Corpus:
    places: list[str] = []
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda place: (places.append(place), (fake, "root"))[1])
    monkeypatch.setattr(fineweb_network.time, "sleep", waits.append)
    corpus = prepare_fineweb_shards(FineWebShardSettings(tokens="1K"), tmp_path / "out", say=quiet)
    assert places == ["hf://datasets/kjj0/fineweb10B-gpt2@889765ea1f903759787add96995d81171b632d0c"]
    return corpus


def test_the_hub_is_asked_at_the_pinned_revision_and_a_broken_file_again(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    corpus = fetch_from(Hub(hub, failures=2), tmp_path, monkeypatch, waits)
    assert len(corpus.split("train")) == 1000 and waits == [1, 2]
    stated = json.loads((tmp_path / "out" / "source.json").read_text())
    assert stated["revision"] == "889765ea1f903759787add96995d81171b632d0c"
    whole = (hub / "fineweb_train_000001.bin").read_bytes()
    assert stated["files"]["fineweb_train_000001.bin"] == {
        "size": 1024 + 2 * 1000,
        "sha256": hashlib.sha256(whole).hexdigest(),
    }


def test_a_hub_that_stays_away_ends_in_a_sentence(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with pytest.raises(RunError, match="8 times in a row"):
        fetch_from(Hub(hub, failures=99), tmp_path, monkeypatch, waits)
    assert sum(waits) == 127
