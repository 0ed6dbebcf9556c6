import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from prism_transformer.data.shards import Shard, ShardWriter
from prism_transformer.errors import InputError

TOKENIZER = hashlib.sha256(b"some tokenizer").hexdigest()


def write(folder: Path, ids: list[int], *, vocab_size: int, shard_tokens: int = 1000) -> list[Path]:
    writer = ShardWriter(
        folder, "train", vocab_size=vocab_size, tokenizer_fingerprint=TOKENIZER, shard_tokens=shard_tokens
    )
    writer.write(np.array(ids))
    return [folder / info.name for info in writer.close()]


def test_layout_is_that_of_llm_c(tmp_path: Path) -> None:
    """256 int32 with magic 20240520, version 1 and the count, then uint16: as llm.c's dataloader reads it."""
    (path,) = write(tmp_path, [5, 0, 65535], vocab_size=65536)
    raw = path.read_bytes()
    assert struct.unpack("<3i", raw[:12]) == (20240520, 1, 3)
    assert struct.unpack("<3H", raw[1024:]) == (5, 0, 65535)


def test_large_vocabulary_takes_the_32_bit_layout(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [5, 65536], vocab_size=65537)
    raw = path.read_bytes()
    assert struct.unpack("<3i", raw[:12]) == (20240801, 7, 2)
    assert struct.unpack("<2I", raw[1024:]) == (5, 65536)
    assert Shard.open(path).ids().tolist() == [5, 65536]


@pytest.mark.parametrize(("vocab_size", "item_bytes"), [(65536, 2), (65537, 4), (257, 2), (119547, 4)])
def test_item_size_follows_the_vocabulary(tmp_path: Path, vocab_size: int, item_bytes: int) -> None:
    top = vocab_size - 1
    (path,) = write(tmp_path, [0, top], vocab_size=vocab_size)
    assert path.stat().st_size == 1024 + 2 * item_bytes
    assert Shard.open(path).ids().tolist() == [0, top]


@pytest.mark.parametrize("vocab_size", [257, 65536, 65537])
def test_writing_an_id_out_of_range_is_refused_with_its_position(tmp_path: Path, vocab_size: int) -> None:
    writer = ShardWriter(tmp_path, "train", vocab_size=vocab_size, tokenizer_fingerprint=TOKENIZER)
    writer.write(np.zeros(10, dtype=np.int64))
    with pytest.raises(InputError, match=rf"token 12 has id {vocab_size}\b"):
        writer.write(np.array([1, 2, vocab_size]))
    writer.abandon()


def test_tokens_run_on_over_shards(tmp_path: Path) -> None:
    paths = write(tmp_path, list(range(25)), vocab_size=100, shard_tokens=10)
    assert [path.name for path in paths] == ["train_000000.bin", "train_000001.bin", "train_000002.bin"]
    assert [Shard.open(path).tokens for path in paths] == [10, 10, 5]
    assert np.concatenate([Shard.open(path).ids() for path in paths]).tolist() == list(range(25))


def test_no_tokens_make_one_empty_shard(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [], vocab_size=100)
    assert Shard.open(path).ids().tolist() == []


def test_header_names_content_and_tokenizer(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [1, 2, 3], vocab_size=100)
    header = path.read_bytes()[:1024]
    assert struct.unpack("<i", header[12:16]) == (100,)
    assert header[16:48] == hashlib.sha256(struct.pack("<3H", 1, 2, 3)).digest()
    assert Shard.open(path).tokenizer_fingerprint == TOKENIZER


def test_identity_changes_with_any_id(tmp_path: Path) -> None:
    identities = set()
    for number, middle in enumerate((7, 8)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (path,) = write(folder, [*range(2000), middle, *range(2000)], vocab_size=2000, shard_tokens=5000)
        identities.add(Shard.open(path).identity())
    assert len(identities) == 2


@pytest.mark.parametrize("cut", [1, 2, 500])
def test_truncated_shard_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    (path,) = write(tmp_path, list(range(1000)), vocab_size=1000)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match=r"train_000000\.bin: .*1,000 tokens.*truncated"):
        Shard.open(path)


def test_shard_cut_inside_its_header_is_refused(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [1, 2, 3], vocab_size=1000)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"train_000000\.bin"):
        Shard.open(path)


def test_nanogpt_file_has_no_header(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    np.array([50256, 15496, 995], dtype=np.uint16).tofile(path)
    shard = Shard.open(path)
    assert shard.ids().tolist() == [50256, 15496, 995]
    assert shard.tokenizer_fingerprint is None


def test_foreign_header_without_tokenizer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fineweb_train_000001.bin"
    path.write_bytes(struct.pack("<256i", 20240520, 1, 2, *[0] * 253) + struct.pack("<2H", 4, 9))
    shard = Shard.open(path)
    assert (shard.ids().tolist(), shard.tokenizer_fingerprint) == ([4, 9], None)


@pytest.mark.parametrize("content", [b"", b"\x01\x02\x03"])
def test_file_of_no_known_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"train\.bin"):
        Shard.open(path)


@pytest.mark.parametrize(("magic", "version"), [(20240520, 2), (20240520, 7), (20240801, 1)])
def test_unknown_version_is_refused(tmp_path: Path, magic: int, version: int) -> None:
    """Also the version of the other magic. What is read is stated in pairs."""
    path = tmp_path / "train.bin"
    path.write_bytes(struct.pack("<256i", magic, version, 0, *[0] * 253))
    pairs = r"20240520 with 1 \(uint16\) and 20240801 with 7 \(uint32\) are: write"
    with pytest.raises(InputError, match=rf"train\.bin: shard magic {magic} with version {version} is .*{pairs}"):
        Shard.open(path)


def test_missing_shard_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.bin"):
        Shard.open(tmp_path / "gone.bin")
