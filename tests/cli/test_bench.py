"""`prism bench` as a user types it."""

import json
from pathlib import Path

import pytest

from prism_transformer.cli import main

SMALL = ["--layers", "2", "--d-model", "16", "--heads", "4", "--context", "16", "--micro-batch", "2"]
QUICK = [*SMALL, "--vocab-size", "257", "--rounds", "3", "--turn-seconds", "0.0001"]


def test_two_arms(in_empty_folder, capsys):
    arguments = ["bench", *QUICK, "--no-memory", "--arms", "wide=1,4", "--out", "kept"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for told in ("training: a step of one micro-batch", "prefill", "decode", "uniform", "wide", "ratio", "baseline"):
        assert told in out
    assert "flash (head dim 16, 4)" in out and "GFLOP/s: a large float32 matrix product" in out
    assert "median of 3 rounds with its" in out
    assert max(map(len, out.splitlines())) <= 80
    kept = json.loads(Path("kept/bench.json").read_text())
    assert kept["arms"]["wide"]["heads"] == "1x1,4x1" and Path("kept/bench.svg").exists()
    assert main(arguments) == 2
    assert "kept/bench.json is there already" in capsys.readouterr().err


def test_one_arm_as_json(in_empty_folder, capsys):
    arguments = ["bench", *QUICK, "--no-memory", "--arms", "uniform", "--work", "prefill", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["arms"]) == ["uniform"] and found["arms"]["uniform"]["prefill"]["tokens"] == 16
    assert len(list(Path("bench").iterdir())) == 1


def test_attention_alone(in_empty_folder, capsys):
    arguments = ["bench", "--kernels", *QUICK, "--head-dims", "4", "8", "--contexts", "8", "--out", "kept"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "block-causal" in out and "forward" in out and max(map(len, out.splitlines())) <= 80
    assert len(json.loads(Path("kept/kernels.json").read_text())["rows"]) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--schedule", "prism", "--rounds", "1"], ["takes its schedules as --arms", "--rounds 1 must be at least 3"]),
        (["--turn-seconds", "0"], ["--turn-seconds 0.0 must be above 0"]),
        (["--arms", "prisn"], ["prisn"]),
        (["--kernels", "--head-dims", "5", "0"], ["--head-dims 5 does not divide d_model=16", "--head-dims 0 must be"]),
        (["--contexts", "8"], ["belong to --kernels"]),
        (["--kernels", "--require-fused"], ["--kernels times none"]),
        (["--context", "1"], ["decoding takes a context of at least 2"]),
        (["--device", "cuda:9"], ["cuda:9 is not here"]),
    ],
)
def test_bad_input(arguments, told, in_empty_folder, capsys):
    assert main(["bench", *SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    for sentence in told:
        assert sentence in err
    assert not Path("bench").exists()


def test_require_fused(in_empty_folder, capsys, monkeypatch):
    from prism_transformer.benchmark import bench as module
    from prism_transformer.benchmark.inspection import PLAIN

    monkeypatch.setattr(module, "attention_kernels", lambda model, run: ["flash", PLAIN])
    arguments = ["bench", *QUICK, "--no-memory", "--arms", "uniform", "--work", "prefill", "--require-fused"]
    assert main([*arguments, "--out", "kept"]) == 2
    assert Path("kept/bench.json").is_file(), "what was measured is not lost"
    assert "layer 2: prefill runs without a fused attention kernel (head dim 4)" in capsys.readouterr().err
