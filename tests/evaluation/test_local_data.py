"""Items of evaluation sets from folders, in the hub's layout and plain."""

import gzip
import json
import lzma
import tarfile

import pyarrow as pa
import pyarrow.parquet
import pytest

from prism_transformer.errors import InputError
from prism_transformer.evaluation.local_data import DataSet, find_items, how_to_fetch

PIQA = DataSet(hub="baber/piqa", config=None, split="validation")
ITEM = {"goal": "g", "sol1": "a", "sol2": "b", "label": 1}


def write_parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    "place",
    [
        "baber/piqa/plain_text/validation-00000-of-00001.parquet",
        "piqa/data/validation-00000-of-00001.parquet",
        "baber--piqa/validation.parquet",
        "datasets--baber--piqa/snapshots/abc/plain_text/validation-00000-of-00001.parquet",
    ],
)
def test_hub_layouts(tmp_path, place):
    write_parquet(tmp_path / place, [ITEM])
    write_parquet((tmp_path / place).with_name("train-00000-of-00001.parquet"), [ITEM, ITEM])
    found = find_items(tmp_path, "piqa", PIQA)
    assert found.rows == [ITEM]
    assert [str(tmp_path / place)] == list(found.files)


def test_the_folder_itself_may_be_given(tmp_path):
    write_parquet(tmp_path / "piqa" / "validation-00000-of-00001.parquet", [ITEM])
    assert find_items(tmp_path / "piqa", "piqa", PIQA).rows == [ITEM]


def test_shards_are_read_in_order(tmp_path):
    for k in (1, 0):
        write_parquet(tmp_path / "piqa" / f"validation-0000{k}-of-00002.parquet", [{**ITEM, "goal": str(k)}])
    assert [row["goal"] for row in find_items(tmp_path, "piqa", PIQA).rows] == ["0", "1"]


def test_a_configuration_is_a_folder(tmp_path):
    for config in ("ARC-Easy", "ARC-Challenge"):
        row = {"question": config, "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
        write_parquet(tmp_path / "ai2_arc" / config / "test-00000-of-00001.parquet", [row])
    found = find_items(tmp_path, "arc_easy", DataSet(hub="allenai/ai2_arc", config="ARC-Easy", split="test"))
    assert [row["question"] for row in found.rows] == ["ARC-Easy"]


@pytest.mark.parametrize(("suffix", "opener"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_plain_files_may_be_compressed(tmp_path, suffix, opener):
    with opener(tmp_path / f"piqa_validation.jsonl{suffix}", "wt") as file:
        file.write(json.dumps(ITEM) + "\n\n")
    assert find_items(tmp_path, "piqa", PIQA).rows == [ITEM]


def test_plain_arc_becomes_the_hub_s(plain_data):
    data = DataSet(hub="allenai/ai2_arc", config="ARC-Easy", split="test")
    first, second = find_items(plain_data, "arc_easy", data).rows
    assert first["choices"] == {"text": ["swim", "fly", "read"], "label": ["A", "B", "C"]}
    assert (first["answerKey"], second["answerKey"]) == ("A", "D")


def test_plain_hellaswag_is_past_the_harness_preparation(plain_data):
    found = find_items(plain_data, "hellaswag", DataSet(hub="Rowan/hellaswag", config=None, split="validation"))
    assert found.preprocessed
    assert found.rows[1] == {
        "query": "Pets: A dog",
        "choices": ["reads.", "sees a cat.", "flies.", "is a fish."],
        "label": "1",
    }


def test_only_the_test_articles_of_plain_wikitext_are_scored(plain_data):
    found = find_items(plain_data, "wikitext", DataSet(hub="x/y", config=None, split="test"))
    assert len(found.rows) == 2 and all("Never" not in row["page"] for row in found.rows)


def test_blimp_from_its_archive(plain_data, tmp_path):
    with tarfile.open(tmp_path / "blimp.tar.xz", "w:xz") as archive:
        archive.add(plain_data / "blimp", "blimp")
    data = DataSet(hub="nyu-mll/blimp", config="causative", split="train")
    from_archive = find_items(tmp_path, "blimp_causative", data)
    assert from_archive.rows == find_items(plain_data, "blimp_causative", data).rows
    assert len(from_archive.rows) == 6


def test_what_is_not_there(tmp_path):
    assert find_items(tmp_path, "piqa", PIQA) is None
    assert how_to_fetch(tmp_path, PIQA) == (
        f"on a machine with network: hf download baber/piqa --repo-type dataset --local-dir {tmp_path}/baber/piqa; "
        f"then give --eval-data {tmp_path}"
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"goal": "g"', r"piqa_validation.jsonl, line 2: no JSON"),
        ('{"goal": "g", "sol1": "a"}', r"line 2: sol2 and label missing"),
        ("3", r"line 2: an object missing"),
    ],
)
def test_a_faulty_line_is_named(tmp_path, line, told):
    (tmp_path / "piqa_validation.jsonl").write_text(f"{json.dumps(ITEM)}\n{line}\n")
    with pytest.raises(InputError, match=told):
        find_items(tmp_path, "piqa", PIQA)


@pytest.mark.parametrize("name", ["piqa_validation.jsonl.xz", "piqa/validation.parquet", "blimp.tar.xz"])
def test_a_damaged_file_is_named(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xfd7zXZ\x00 and then nothing that anybody can read")
    task = "blimp_causative" if "blimp" in name else "piqa"
    with pytest.raises(InputError, match=name.rpartition("/")[2]):
        find_items(tmp_path, task, PIQA)


def test_the_real_sets_are_whole(real_data):
    """The counts of the published sets."""
    counts = {
        "piqa": ("validation", 1838),
        "hellaswag": ("validation", 10042),
        "arc_easy": ("test", 2376),
        "winogrande": ("validation", 1267),
        "lambada_openai": ("test", 5153),
        "blimp_causative": ("train", 1000),
    }
    for task, (split, count) in counts.items():
        found = find_items(real_data, task, DataSet(hub="none/none", config=None, split=split))
        assert len(found.rows) == count, task
