"""`prism attention` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest

from prism_transformer.cli import main


@pytest.fixture(scope="module")
def study(trained_study, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "study"
    shutil.copytree(trained_study, folder)
    return folder


def fits_80_columns(out: str) -> bool:
    """All lines but those that end in a path."""
    return max(len(line) for line in out.splitlines() if "/" not in line) <= 80


def test_a_run_by_layer_and_head(study, in_empty_folder, capsys):
    run = study / "runs" / "prism" / "seed-0"
    assert main(["attention", str(run), "--sequences", "3", "--by-head"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line[:5].strip().isdigit()]
    assert [int(row[1]) for row in rows] == [1, 2, 4, 4]
    assert sum(line.split()[:1] == [f"#{k}"] for line in out.splitlines() for k in range(1, 5)) == 1 + 2 + 4 + 4
    assert "3 windows of 32 tokens, documents packed" in out and fits_80_columns(out)
    (kept,) = (run / "evaluation" / "step-000012").glob("attention-*.json")
    assert f"kept: {kept}" in out


def test_a_checkpoint_and_a_text_as_json(study, in_empty_folder, capsys):
    Path("text.txt").write_text("The cat sees the dog. " * 40)
    checkpoint = study / "runs" / "uniform" / "seed-1" / "checkpoints" / "step-000012"
    command = ["attention", str(checkpoint), "--text", "text.txt", "--context", "16", "--documents", "apart", "--json"]
    assert main([*command, "--out", "kept"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["settings"]["context"] == 16 and found["settings"]["documents"] == "apart"
    assert len(found["layers"]) == 4 and all(0 <= layer["mean"]["distance"] < 16 for layer in found["layers"])
    for layer in found["layers"]:
        assert layer["mean"]["distance"] == pytest.approx(sum(layer["distance"]) / layer["heads"])
    assert found["kept"].startswith("kept/uniform-step-000012-seed-1/")
    assert main([*command, "--out", "kept"]) == 0  # kept before: the same again
    assert json.loads(capsys.readouterr().out)["runs"] == [found]


def test_a_study_by_arm(study, in_empty_folder, capsys):
    assert main(["attention", str(study), "--sequences", "2"]) == 0
    out = capsys.readouterr().out
    assert "prism minus uniform, attention distance in tokens, 2 pairs of runs" in out
    assert "4→1" in out and "95 % interval" in out and fits_80_columns(out)
    for name in ("attention.json", "figures/attention-distance.svg", "figures/attention-difference.png"):
        assert (study / name).stat().st_size > 1000 and f"written: {study / name}" in out.replace("\n", "")
    kept = json.loads((study / "attention.json").read_text())
    layer = kept["differences"]["prism"]["layers"][0]["distance"]
    own, base = (kept["arms"][arm]["layers"][0]["distance"]["per_seed"] for arm in ("prism", "uniform"))
    assert layer["mean"] == pytest.approx(sum(a - b for a, b in zip(own, base, strict=True)) / 2)
    assert layer["n"] == 2 and layer["low"] < layer["mean"] < layer["high"]
    for arm in kept["arms"].values():
        assert all((study / source).is_file() for source in arm["sources"])
    assert main(["attention", str(study), "--sequences", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == kept


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a run, a checkpoint, a study"),
        (["STUDY", "RUN"], "give one study alone, or runs without a study"),
        (["STUDY", "--out", "x", "--by-head"], "--out and --by-head: of a study"),
        (["RUN", "--sequences", "0"], "--sequences 0 must be at least 1"),
        (["RUN", "--context", "1"], "--context 1 must be at least 2"),
        (["RUN", "--context", "100000"], "tokens, but a window takes 100,000"),
        (["RUN", "--text", "nothing.txt"], "nothing.txt: no such file or folder"),
        (["nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_input(arguments, told, study, in_empty_folder, capsys):
    places = {"STUDY": str(study), "RUN": str(study / "runs" / "prism" / "seed-0")}
    assert main(["attention", *(places.get(word, word) for word in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and told in err and "Traceback" not in err


def test_a_study_with_one_arm(study, tmp_path, in_empty_folder, capsys):
    shutil.copytree(study, tmp_path / "study")
    shutil.rmtree(tmp_path / "study" / "runs" / "prism")
    assert main(["attention", str(tmp_path / "study")]) == 2
    told = capsys.readouterr().err
    assert "a difference takes uniform and another arm, and only uniform has a finished run" in told
    assert "prism attention RUN" in told


def test_a_foreign_model_needs_a_text(tmp_path, in_empty_folder, capsys):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained("llama")
    assert main(["attention", "llama", "--tokenizer", "bytes"]) == 2
    assert "give text with --text" in capsys.readouterr().err
    Path("text.txt").write_text("The cat sees the dog. " * 10)
    assert main(["attention", "llama", "--tokenizer", "bytes", "--text", "text.txt"]) == 0
    assert "kept: evaluations/llama/attention-packed-16-8-" in capsys.readouterr().out.replace("\n", "")
