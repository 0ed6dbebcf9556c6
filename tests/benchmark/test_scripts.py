"""The scripts of benchmarks/ run, at sizes at which their figures mean nothing."""

import json
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)

    def call(script: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(FOLDER / script), *arguments])
        runpy.run_path(str(FOLDER / script), run_name="__main__")
        return capsys.readouterr().out

    return call


def test_gpu_on_the_cpu(run):
    out = run("gpu.py", "--device", "cpu", "--scales", "tiny", "--no-compile", "--rounds", "3", "--out", "gpu.json")
    assert "block-causal, head dim 32, relative error" in out and "(ok)" in out and "nothing" in out.splitlines()[-1]
    found = json.loads(Path("gpu.json").read_text())
    arms = found["tiny"]["arms"]
    assert arms["prism"]["kernels"] == ["flash", "flash"] and arms["uniform"]["tokens_per_second"] > 0
    assert set(found["tiny"]["loss"]) == {"plain", "in chunks"} and found["left_out"] == []


def test_gpu_leaves_out_what_there_is_no_time_for(run):
    out = run("gpu.py", "--device", "cpu", "--scales", "tiny", "--no-compile", "--minutes", "0", "--out", "gpu.json")
    assert "gradients, attention, tiny" in out.splitlines()[-1]


def test_attention_memory(run):
    small = ["--layers", "2", "--d-model", "32", "--heads", "4", "--context", "16", "--vocab-size", "99"]
    found = json.loads(run("attention_memory.py", *small, "--threads", "1"))
    assert found["seconds"] >= 0 and 0.05 < found["peak_gb"] < 8 and found["sequences"] == 8


def test_prism_against_uniform(run):
    out = run("prism_against_uniform.py", "--sizes", "tiny", "--rounds", "3", "--steps", "1")
    assert "speed of prism relative to uniform" in out and "GFLOP/s" in out


@pytest.mark.slow
def test_decode_against_gpt2(run):
    out = run(
        "decode_against_gpt2.py", "--sizes", "tiny", "--rounds", "2", "--pairs", "1", "--prompt", "3", "--new", "4"
    )
    assert "static cache, speed relative to GPT-2" in out and "growing cache, tokens/s" in out


@pytest.mark.slow
def test_step_against_llama(run):
    out = run("step_against_peers.py", "--peer", "llama", "--sizes", "tiny", "--rounds", "2", "--pairs", "1")
    # by hand, in a layer 8 d^2 of projections, 6 d floor(8 d / 3) of SwiGLU, 4 T d of attention; 2 d V of the head
    flops = 2 * (8 * 32**2 + 6 * 32 * 85 + 4 * 16 * 32) + 2 * 32 * 128
    assert [line.split()[-1] for line in out.splitlines() if "FLOPs a token" in line] == [f"{flops:,}"] * 2
    assert "speed relative to Llama of transformers" in out and "peak memory of the processes" in out


def test_a_peer_that_is_not_there(run, capsys):
    with pytest.raises(SystemExit) as caught:
        run("step_against_peers.py", "--peer", "nanogpt", "--nanogpt", "nowhere")
    assert caught.value.code == 2 and "no model.py there; give a checkout of nanoGPT" in capsys.readouterr().err


def test_encode_gpt2(run, tmp_path):
    (tmp_path / "text.txt").write_text("Whose woods these are I think I know. <|endoftext|> 2026\n" * 2000)
    out = run("encode_gpt2.py", "text.txt", "--megabytes", "0.01", "--rounds", "2")
    assert "equal ids" in out and "speed relative to tiktoken's thread, cpu seconds" in out
    assert "prism data prepare" in out
