"""`prism train`: one model from the command line, and every way to get it wrong."""

import json
from pathlib import Path

import pytest

from prism_transformer.cli import main
from prism_transformer.machine import available_cores
from prism_transformer.training.loop import Session


def run(*argv: str) -> int:
    try:
        return main(["train", *argv])
    except SystemExit as ended:  # tyro's way out
        assert isinstance(ended.code, int)
        return ended.code


def test_a_run_is_trained_told_and_kept(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml, "--out", "first", "--schedule", "prism") == 0
    out, err = capsys.readouterr()
    final = json.loads(Path("first/metrics.jsonl").read_text().splitlines()[-1])
    assert out.splitlines()[0].startswith(f"validation loss {final['val_loss']:.4f} nats per token (")
    assert out.splitlines()[0].endswith("after 640 tokens") and out.splitlines()[1] == "run: first"
    lines = err.splitlines()
    assert sum(line.startswith("device cpu, float32: as asked") for line in lines) == 1
    assert sum(line.startswith("step 1/10: loss 5.") for line in lines) == 1
    assert sum(line.startswith("step 5/10: validation loss") for line in lines) == 1
    assert "\x1b" not in err, "plain lines where stderr is no terminal"
    assert (
        "schedule: 1x1,4x1" in Path("first/recipe.yaml").read_text() or "prism" in Path("first/recipe.yaml").read_text()
    )

    before = Path("first/metrics.jsonl").read_bytes()
    assert run("--recipe", tiny_yaml, "--out", "first", "--schedule", "prism") == 0
    out, err = capsys.readouterr()
    assert "first is finished" in err and Path("first/metrics.jsonl").read_bytes() == before
    assert run("--recipe", tiny_yaml, "--out", "first", "--lr", "1e-4") == 2
    assert "optimizer.lr: 0.003 -> 0.0001" in capsys.readouterr().err


def test_json_is_all_of_stdout(tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--recipe", tiny_yaml, "--out", "first", "--json", "--threads", str(available_cores() + 1)) == 0
    out, err = capsys.readouterr()
    final = json.loads(out)
    assert final["final"] and final["step"] == 10
    assert f"warning: threads={available_cores() + 1} is more than the {available_cores()} cores" in err


def test_a_stopped_run_goes_on_with_its_own_settings(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--recipe", tiny_yaml, "--out", "unbroken", "--json") == 0
    unbroken = json.loads(capsys.readouterr().out)

    def stopped(session: Session) -> None:
        if session.step == 4:
            session.stop(15)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "evaluate_on_the_way", stopped)
        assert run("--recipe", tiny_yaml, "--out", "broken") == 75
    assert "stopped at step 4 of 10, saved" in capsys.readouterr().err

    assert run("--resume", "broken", "--dry_run", "--json") == 0  # tyro takes both spellings
    assert json.loads(capsys.readouterr().out)["steps"] == 10
    assert run("--resume", "broken", "--lr", "1", "--seed=3") == 2
    assert "--resume goes on with the run's own settings; leave out --lr, --seed" in capsys.readouterr().err
    assert run("--resume", "broken", "--json") == 0
    out, err = capsys.readouterr()
    assert "going on from" in err
    assert json.loads(out)["val_loss"] == unbroken["val_loss"]


def test_a_loss_that_is_not_finite_ends_with_3(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml, "--out", "wild", "--lr", "1e9") == 3
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert "at step 2" in error and "learning rate 9.78e+08" in error  # 1e9 on a cosine over 10 steps
    assert "Last good state" in error


def test_a_dry_run_shows_what_a_run_takes_and_writes_nothing(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml, "--dry-run", "--schedule", "prism") == 0
    lines = capsys.readouterr().out.splitlines()
    # 257 x 16 + 2 (4 x 16² + 3 x 16 x 42 + 2 x 16) + 16, with SwiGLU's floor(8 x 16 / 3) = 42
    assert lines[0] == "10.27K parameters, heads per layer 1x1,4x1, head dims 16, 4"
    assert lines[1] == "640 tokens in 10 steps of 64: 1 micro-batch of 4 x 16"
    assert list(in_empty_folder.iterdir()) == []


def test_a_dry_run_counts_the_logits_of_a_mac(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss in chunks, which holds no logits, is the CPU's alone."""
    import torch

    from prism_transformer.training import device

    def memory_on(name: str) -> dict[str, int]:
        chosen = device.Device(torch.device(name), torch.float32, ())
        monkeypatch.setattr(device, "choose_device", lambda settings: chosen)
        assert run("--recipe", tiny_yaml, "--dry-run", "--json") == 0
        memory: dict[str, int] = json.loads(capsys.readouterr().out)["fit"]["memory"]
        return memory

    assert memory_on("mps")["logits"] > memory_on("cpu")["logits"]


@pytest.mark.parametrize(
    ("argv", "messages"),
    [
        (["--recipe", "TINY"], ["--out is missing"]),
        (["--recipe", "demoo", "--out", "x"], ["no recipe or YAML file 'demoo'; did you mean 'demo'?"]),
        (["--recipe", "none.yaml", "--out", "x"], ["none.yaml cannot be read: No such file or directory"]),
        (["--recipe"], ["--recipe needs the name of a recipe or a YAML file"]),
        (["--recipe", "TINY", "--out", "x", "--data", "none.txt"], ["none.txt: no such file or folder"]),
        (["--recipe", "TINY", "--out", "x", "--data", "--lr", "1"], ["--data needs a path"]),
        (["--recipe", "TINY", "--out", "x", "--device", "cuda:99"], ["device=cuda:99 is not here"]),
        (["--recipe", "TINY", "--out", "x", "--device", "gpu"], ["device='gpu' is not known"]),
        (["--recipe", "TINY", "--out", "x", "--dry-run", "False"], ["--dry-run False: a flag takes no value"]),
        (["--recipe", "TINY", "--out", "x", "--compile=true"], ["--compile true: a flag takes no value"]),
        (["--recipe", "TINY", "--out", "x", "--lrr", "1"], ["Unrecognized options: --lrr", "--lr FLOAT"]),
        (["--recipe", "TINY", "--out", "x", "--lr", "much"], ["Error parsing --lr"]),
        (["--recipe", "TINY", "--out", "x", "--dtype", "int8"], ["--dtype"]),
        (["--recipe", "TINY", "--out", "a-file"], ["a-file is a file; give a folder"]),
        (["--recipe", "TINY", "--out", "a-file/x"], ["a-file/x cannot be used: Not a directory"]),
        (["--recipe", "TINY", "--out", "."], [". holds something else (a-file)"]),
        (["--resume", "nowhere"], ["nowhere is no run: it has no recipe.yaml"]),
        (["--recipe", "TINY", "--out", "x", "--schedule", "5x2"], ["heads[0..1]=5 does not divide d_model=16"]),
        (
            ["--recipe", "TINY", "--out", "x", "--tokens", "3", "--lr", "-1", "--micro-batch", "3", "--layers", "0"],
            ["layers=0 must be at least 1", "lr=-1.0 must be", "tokens=3", "is no multiple of context x micro_batch"],
        ),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    argv: list[str],
    messages: list[str],
    tiny_yaml: str,
    in_empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a-file").write_text("mine")
    assert run(*[tiny_yaml if word == "TINY" else word for word in argv]) == 2
    out, err = capsys.readouterr()
    assert all(message in err for message in messages), err
    assert out == "" and "Traceback" not in err
    assert [path.name for path in in_empty_folder.iterdir()] == ["a-file"]
    assert Path("a-file").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["must hold a mapping of settings"]),
        ("model: {layers: 2", ["is not YAML"]),
        ("- model", ["must hold a mapping of settings, not list"]),
        ("model: {layrs: 2}", ["no setting 'layrs'; did you mean 'layers'?"]),
        ("layers: 2", ["no setting 'layers'; it belongs in model, as model.layers"]),
        (
            "modle: {}\ntraining: {tokens: many}",
            ["no setting 'modle'; did you mean 'model'?", "must be a whole number"],
        ),
        ("device: {compile: 'False'}", ["compile='False' must be true or false"]),
    ],
)
def test_a_broken_recipe_is_named(
    text: str, messages: list[str], in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(text)
    assert run("--recipe", "mine.yaml", "--out", "x") == 2
    err = capsys.readouterr().err
    assert all(message in err for message in messages), err
    assert not Path("x").exists()
