"""Scores of tiny models on small sets: every figure recomputed from the items, and everything it depends on told."""

import json
import math
import shutil
import socket
import statistics
from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.evaluation.evaluate import Computation, evaluate
from prism_transformer.evaluation.zero_shot import _grouped, open_tasks, require_harness, standard_error

pytest.importorskip("lm_eval", reason="the extra eval is not installed")

PAPER = ["hellaswag", "piqa", "winogrande", "arc_easy", "wikitext", "lambada_openai", "blimp_causative"]
"""blimp itself takes all of its 67 sets."""


@pytest.fixture(scope="module")
def run(trained_study, tmp_path_factory) -> Path:
    study = tmp_path_factory.mktemp("copy") / "study"
    shutil.copytree(trained_study, study)
    return study / "runs" / "uniform" / "seed-0"


@pytest.fixture(scope="module")
def no_network():
    """Every connection fails, and is noted."""
    tried = []
    with pytest.MonkeyPatch.context() as patch:

        def refuse(self, address):
            tried.append(address)
            raise OSError("network is blocked")

        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "create_connection", lambda *args, **kwargs: refuse(None, args[0]))
        yield tried


@pytest.fixture(scope="module")
def scored(run, plain_data, no_network) -> dict:
    found = evaluate(run, tasks=PAPER, data=plain_data, say=lambda line: None)
    assert no_network == []
    return found


def items(scored, task: str) -> list[dict]:
    return [json.loads(line) for line in (Path(scored["kept"]) / f"{task}.jsonl").read_text().splitlines()]


def test_all_of_the_paper_tasks_without_network(scored):
    assert list(scored["scores"]) == PAPER
    for task, score in scored["scores"].items():
        assert score["items"] == score["available"] > 1, task
        assert score["shots"] == 0 and score["version"] is not None and score["prompt"], task
        assert len(score["source"]["sha256"]) == 64, task
        assert score["at_chance"] == [] or score["chance"] is not None
    assert scored["model"]["bos"] == "end-of-text before each text, as in training"


def test_accuracies_are_recomputed_from_the_items(scored):
    """By hand: the ending with the highest log-likelihood, as it is and divided by its characters."""
    endings = ("Give the cat fish.", "Give the fish the cat.")
    rows = items(scored, "piqa")
    assert [row["item"] for row in rows] == list(range(10))
    right, right_norm = [], []
    for row in rows:
        nats = [response[0] for response in row["responses"]]
        by_length = [value / len(ending) for value, ending in zip(nats, endings, strict=True)]
        right.append(nats.index(max(nats)) == row["target"])
        right_norm.append(by_length.index(max(by_length)) == row["target"])
    metrics = scored["scores"]["piqa"]["metrics"]
    assert metrics["acc"]["value"] == pytest.approx(sum(right) / 10)
    assert metrics["acc_norm"]["value"] == pytest.approx(sum(right_norm) / 10)
    assert metrics["acc"]["stderr"] == pytest.approx(statistics.stdev(map(int, right)) / math.sqrt(10))


def test_guessing_is_called_guessing(scored):
    """Labels alternate and both endings are the same in every item, so a model can only be at chance."""
    piqa = scored["scores"]["piqa"]
    assert piqa["chance"] == 0.5 and "acc" in piqa["at_chance"]
    arc = scored["scores"]["arc_easy"]
    assert arc["chance"] == pytest.approx((1 / 3 + 1 / 4) / 2)  # three and four choices
    assert scored["scores"]["wikitext"]["chance"] is None


def test_perplexities(scored):
    metrics = scored["scores"]["wikitext"]["metrics"]
    rows = [row["values"] for row in items(scored, "wikitext")]
    nats, words = (sum(row["word_perplexity"][k] for row in rows) for k in (0, 1))
    nats_again, text_bytes = (sum(row["bits_per_byte"][k] for row in rows) for k in (0, 1))
    assert text_bytes == len("The cat finds the dog. " * 30 + "The bird likes the fish. " * 10)
    assert metrics["word_perplexity"]["value"] == pytest.approx(math.exp(-nats / words))
    assert metrics["bits_per_byte"]["value"] == pytest.approx(-nats_again / text_bytes / math.log(2))
    assert metrics["bits_per_byte"]["stderr"] > 0
    lambada = scored["scores"]["lambada_openai"]["metrics"]
    values = [row["values"]["perplexity"] for row in items(scored, "lambada_openai")]
    assert lambada["perplexity"]["value"] == pytest.approx(math.exp(-sum(values) / len(values)))


def test_standard_errors_by_hand():
    assert standard_error([0.0, 1.0, 1.0, 1.0], 0.75) == pytest.approx(0.5 / 2)
    nats = [-1.0, -2.0, -3.0]  # mean 2, sd 1: a change of the mean by 1/sqrt(3) moves exp(2) by exp(2)/sqrt(3)
    assert standard_error(nats, math.exp(2)) == pytest.approx(math.exp(2) / math.sqrt(3))
    pairs = [(-2.0, 1.0), (-6.0, 3.0), (-4.0, 2.0)]  # the same ratio everywhere
    assert standard_error(pairs, math.exp(2)) == pytest.approx(0, abs=1e-12)
    assert standard_error([1.0], 1.0) is None
    assert standard_error([1.0, 3.0, 8.0], 3.0) is None  # a median: no mean of the items


def test_truncated_items_are_counted(scored):
    """The model sees 32 tokens of a vocabulary of 300."""
    assert scored["scores"]["lambada_openai"]["truncated"] == 0
    assert scored["scores"]["piqa"]["truncated"] == 10


def test_batch_size_changes_nothing(run, plain_data, scored, tmp_path):
    alone = evaluate(
        run, tasks=["piqa", "wikitext"], data=plain_data, out=tmp_path, computation=Computation(batch_size=1)
    )
    for task in ("piqa", "wikitext"):
        for a, b in zip(items(alone, task), items(scored, task), strict=True):
            for mine, other in zip(a["responses"], b["responses"], strict=True):
                first = (mine[0], other[0]) if isinstance(mine, list) else (mine, other)
                assert first[0] == pytest.approx(first[1], abs=1e-4)


def test_what_was_kept_is_not_computed_again(run, plain_data, scored, monkeypatch):
    before = (Path(scored["kept"]) / "piqa.jsonl").stat().st_mtime_ns
    monkeypatch.setattr("prism_transformer.evaluation.evaluate.score_tasks", None)
    again = evaluate(run, tasks=["piqa"], data=plain_data)
    assert again["scores"]["piqa"] == scored["scores"]["piqa"]
    assert (Path(scored["kept"]) / "piqa.jsonl").stat().st_mtime_ns == before


def test_a_part_stands_beside_the_whole(run, plain_data, scored):
    part = evaluate(run, tasks=["piqa"], data=plain_data, limit=4)
    assert part["scores"]["piqa"]["items"] == 4 and part["scores"]["piqa"]["available"] == 10
    assert {path.name for path in Path(part["kept"]).glob("piqa*")} == {
        "piqa.json", "piqa.jsonl", "piqa-first-4.json", "piqa-first-4.jsonl"
    }  # fmt: skip


def test_other_items_are_not_taken_for_the_kept_ones(run, plain_data, scored, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    lines = (plain_data / "piqa_validation.jsonl").read_text().replace("cat number", "dog number")
    (other / "piqa_validation.jsonl").write_text(lines)
    with pytest.raises(InputError, match=r"piqa.json holds a result of other settings.*--out"):
        evaluate(run, tasks=["piqa"], data=other)


def test_a_damaged_item_is_named(run, plain_data, scored, tmp_path):
    evaluate(run, tasks=["piqa"], data=plain_data, out=tmp_path)
    (path,) = tmp_path.rglob("piqa.jsonl")
    path.write_text(path.read_text().replace('"item": 3', '"item": 3"'))
    with pytest.raises(InputError, match=r"piqa.jsonl, line 4: no JSON"):
        evaluate(run, tasks=["piqa"], data=plain_data, out=tmp_path)


def test_shots_come_from_the_training_items(run, plain_data, tmp_path):
    with pytest.raises(InputError, match="2 shots take their examples from the train split of baber/piqa"):
        evaluate(run, tasks=["piqa"], data=plain_data, shots=2, out=tmp_path)
    data = tmp_path / "data"
    shutil.copytree(plain_data, data)
    (data / "piqa").mkdir()
    shutil.copy(plain_data / "piqa_validation.jsonl", data / "piqa" / "train.jsonl")
    found = evaluate(run, tasks=["piqa"], data=data, shots=2, out=tmp_path / "out")
    assert found["scores"]["piqa"]["shots"] == 2
    assert (Path(found["kept"]) / "piqa-2-shot.json").exists()


def test_an_unknown_task_names_the_nearest(run, plain_data, monkeypatch):
    from prism_transformer.evaluation import harness_tasks

    class OfAFewFolders(harness_tasks.TaskManager):
        """All of the harness's 14,000 files take half a minute to read."""

        def __init__(self, include_defaults=True, include_path=None):
            folder = Path(harness_tasks.__file__).parent
            super().__init__(include_defaults=False, include_path=include_path or [folder])

    monkeypatch.setattr(harness_tasks, "TaskManager", OfAFewFolders)
    with pytest.raises(InputError, match=r"no task 'pica' in lm-evaluation-harness; did you mean 'piqa'\?"):
        evaluate(run, tasks=["pica"], data=plain_data)


def test_data_that_is_nowhere_says_what_to_fetch(run, tmp_path, no_network):
    said = []
    with pytest.raises(InputError) as caught:
        evaluate(run, tasks=["piqa"], data=tmp_path, say=said.append)
    told = str(caught.value)
    assert "baber/piqa is not in" in told and "hf download baber/piqa --repo-type dataset --local-dir" in told
    assert said == ["fetching baber/piqa from the hub, once"]


def test_of_several_sets_none_is_called_missing_that_may_be_there(run, tmp_path, no_network):
    with pytest.raises(InputError) as caught:
        evaluate(run, tasks=["piqa", "hellaswag"], data=tmp_path, say=lambda line: None)
    first, *how = caught.value.problems
    assert "baber/piqa, " in first and "could not all be read" in first and len(how) == 2


def test_a_group_marks_accuracies_at_chance_and_no_other_metric():
    """Two tasks of 4 and 6 questions with 2 choices: the group's accuracy is guessing's, and f1 has another chance."""
    parts = {
        name: (
            {
                "metrics": {m: {"value": 0.5, "stderr": 0.1, "higher": True} for m in ("acc", "f1")},
                "items": n, "available": n, "truncated": 0, "source": {}, "chance": 0.5,
                "chance_stderr": 0.5 / n**0.5,
            },
            [],
        )
        for name, n in (("a", 4), ("b", 6))
    }  # fmt: skip
    score, _ = _grouped("both", {"acc,none": 0.5, "f1,none": 0.5}, parts)
    assert score["at_chance"] == ["acc"]
    assert score["chance_stderr"] == pytest.approx((0.25 / 4 + 0.25 / 6) ** 0.5 / 2)


def test_a_cached_set_asks_nobody(run, monkeypatch):
    """The hub's libraries are offline on the first try, so what they have once fetched needs no network."""
    from huggingface_hub import constants

    from prism_transformer.evaluation import harness_tasks

    seen = []

    class Manager(harness_tasks.TaskManager):
        def load(self, names):
            seen.append((list(names), constants.HF_HUB_OFFLINE))
            return {"tasks": {}}

    monkeypatch.setattr(harness_tasks, "TaskManager", Manager)
    with open_tasks(["piqa"], folder=None):
        pass
    assert seen == [(["piqa"], True)]
    assert constants.HF_HUB_OFFLINE is False or "HF_HUB_OFFLINE" in __import__("os").environ


def test_no_such_folder_of_sets(run, tmp_path):
    with pytest.raises(InputError, match="no such folder of evaluation sets"):
        evaluate(run, tasks=["piqa"], data=tmp_path / "nowhere")


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'prism-transformer\[eval\]'"):
        require_harness()
