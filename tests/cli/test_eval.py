"""`prism eval` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest

from prism_transformer.cli import main


@pytest.fixture(scope="module")
def study(trained_study, tmp_path_factory) -> Path:
    """A copy, since results are kept in its runs."""
    folder = tmp_path_factory.mktemp("copy") / "study"
    shutil.copytree(trained_study, folder)
    return folder


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    items = [
        {"goal": f"Feed cat {k}", "sol1": "Give it fish.", "sol2": "Give fish it.", "label": k % 2} for k in range(8)
    ]
    (folder / "piqa_validation.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


@pytest.fixture
def text(tmp_path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("The cat sees the dog. The dog likes the bird. " * 20)
    return str(path)


def fits_80_columns(out: str) -> bool:
    """All lines but those that end in a path."""
    return max(len(line) for line in out.splitlines() if "/" not in line) <= 80


def test_text_of_two_runs(study, text, in_empty_folder, capsys):
    runs = [str(study / "runs" / arm / "seed-0") for arm in ("uniform", "prism")]
    assert main(["eval", *runs, "--text", text]) == 0
    out = capsys.readouterr().out
    assert "uniform seed 0" in out and "bits/byte" in out and "17–32: " in out
    assert "BOS: end-of-text before each text, as in training" in out
    assert "text nats_per_token" in out and " windows" in out and "One pair of runs" in out
    assert fits_80_columns(out)


def test_two_seeds_of_one_arm_are_not_compared(study, text, in_empty_folder, capsys):
    runs = [str(study / "runs" / "prism" / f"seed-{seed}") for seed in (0, 1)]
    assert main(["eval", *runs, "--text", text]) == 0
    assert "no differences: these are seeds of one arm" in capsys.readouterr().out


def test_models_of_one_name_are_refused(study, text, tmp_path, in_empty_folder, capsys):
    """Paired by arm and seed, one of them would be taken for the other."""
    other = tmp_path / "other"
    shutil.copytree(study, other)
    assert main(["eval", str(study), str(other), "--text", text]) == 2
    err = capsys.readouterr().err
    assert "uniform seed 0, uniform seed 1, prism seed 0 and 1 more: given twice" in " ".join(err.split())
    run = str(study / "runs" / "prism" / "seed-0")
    assert main(["eval", run, run, "--text", text]) == 2
    assert "prism seed 0: given twice" in capsys.readouterr().err


def test_two_checkpoints_of_one_run_are_compared(study, text, tmp_path, in_empty_folder, capsys):
    run = tmp_path / "study" / "runs" / "prism" / "seed-0"
    shutil.copytree(study, tmp_path / "study")
    last = run / "checkpoints" / "step-000012"
    shutil.copytree(last, last.with_name("step-000011"))
    assert main(["eval", str(last.with_name("step-000011")), str(last), "--text", text, "--json"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (difference["baseline"], difference["arm"]) == ("prism step-000011", "prism step-000012")
    assert (difference["mean"], difference["seeds"]) == (0.0, 1)  # the same weights under two names


def test_text_as_json(study, text, in_empty_folder, capsys):
    assert main(["eval", str(study / "runs" / "prism" / "seed-1"), "--text", text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"][0]
    assert found["model"]["head_schedule"] == "1x1,2x1,4x2" and found["model"]["step"] == 12
    assert found["text"]["bits_per_byte"] > 0 and found["text"]["text_bytes"] == 920
    assert [each["last"] for each in found["text"]["by_position"]] == [1, 2, 4, 8, 16, 32]


def test_a_study_is_scored_and_compared_by_pairs(study, sets, in_empty_folder, capsys):
    pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    assert main(["eval", str(study), "--tasks", "piqa", "--eval-data", str(sets)]) == 0
    out = capsys.readouterr().out
    assert "piqa: 8 items, 0-shot, version 1.0, guessing 0.500" in out
    assert "differences to uniform, paired by item and seed" in out
    assert "cannot tell" in out and "2 seeds" in out and "cannot be told from noise" in out
    assert "prompt of piqa: text 'Question: {{goal}}\\nAnswer:'" in out
    assert "* chance-level: no better than guessing" in out
    assert fits_80_columns(out)
    kept = study / "runs" / "prism" / "seed-1" / "evaluation" / "step-000012"
    assert len((kept / "piqa.jsonl").read_text().splitlines()) == 8
    arms = json.loads((study / "zero_shot.json").read_text())["piqa"]["arms"]
    assert arms["prism"]["sources"][1] == str(kept.relative_to(study))

    assert main(["eval", str(study), "--tasks", "piqa", "--eval-data", str(sets), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in found["runs"]] == [f"{arm} seed {k}" for arm in ("uniform", "prism") for k in (0, 1)]
    assert {each["metric"] for each in found["comparisons"]} == {"acc", "acc_norm"}
    assert all(each["decision"] == "cannot_tell" and each["seeds"] == 2 for each in found["comparisons"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], ["name a run, a checkpoint, a study", "say what to score: --tasks"]),
        (["RUN"], ["say what to score"]),
        (["RUN", "--text", "x.txt", "--limit", "0", "--batch-size", "-1"], ["--limit 0 must", "--batch-size -1 must"]),
        (["nowhere", "--text", "x.txt"], ["nowhere: no such folder"]),
        (["nowhere", "--tasks", "piqa"], ["nowhere: no such folder"]),  # before any data is looked for
        (["RUN", "--text", "x.txt"], ["x.txt: no such file or folder"]),
        (["RUN", "--text", "x.txt", "--device", "cuda:9"], ["cuda:9 is not here"]),
        (["RUN", "--tasks", "piqa", "--eval-data", "nowhere"], ["nowhere: no such folder of evaluation sets"]),
        (["RUN", "--tasks", "piqa", "--shots", "-1"], ["--shots -1 must not be negative"]),
    ],
)
def test_bad_input(arguments, told, study, in_empty_folder, capsys):
    if "--tasks" in arguments:
        pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    run = str(study / "runs" / "prism" / "seed-0")
    assert main(["eval", *(run if word == "RUN" else word for word in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    for sentence in told:
        assert sentence in err


def test_empty_text(study, in_empty_folder, capsys):
    Path("empty.txt").write_text("\n \n")
    assert main(["eval", str(study / "runs" / "prism" / "seed-0"), "--text", "empty.txt"]) == 2
    assert "no text in it" in capsys.readouterr().err


def test_a_run_whose_identity_fails(study, text, tmp_path, in_empty_folder, capsys):
    run = tmp_path / "study" / "runs" / "prism" / "seed-0"
    shutil.copytree(study, tmp_path / "study")
    weights = run / "checkpoints" / "step-000012" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert main(["eval", str(run), "--text", text]) == 2
    assert "was changed or damaged since it was saved" in capsys.readouterr().err


def test_a_study_without_a_finished_run(study, text, tmp_path, in_empty_folder, capsys):
    shutil.copytree(study, tmp_path / "study")
    shutil.rmtree(tmp_path / "study" / "runs")
    assert main(["eval", str(tmp_path / "study"), "--text", text]) == 2
    assert "no run of this study is finished yet" in capsys.readouterr().err


def test_without_the_extra(study, in_empty_folder, capsys, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "lm_eval" else find(name, *rest)
    )
    assert main(["eval", str(study / "runs" / "prism" / "seed-0"), "--tasks", "piqa"]) == 2
    assert "pip install 'prism-transformer[eval]'" in capsys.readouterr().err
