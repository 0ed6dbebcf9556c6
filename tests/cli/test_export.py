"""prism export: what is said, and what is refused. What is written: tests/interchange/test_export.py."""

import pytest

from prism_transformer.cli import main


@pytest.fixture
def run(trained_study):
    return str(trained_study / "runs" / "prism" / "seed-0")


@pytest.mark.slow
def test_the_export_is_proved_and_said(run, in_empty_folder, capsys):
    assert main(["export", run, "--out", "exported"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "heads per layer 1x1,2x1,4x2"
    assert lines[1].startswith("loaded again in a fresh process without network; largest difference: logits ")
    assert lines[2] == "exported: exported"
    assert main(["generate", "exported", "The cat", "--max-tokens", "2"]) == 0


def test_a_target_that_cannot_hold_the_schedule_ends_with_exit_code_2(run, in_empty_folder, capsys):
    assert main(["export", run, "--to", "gguf", "--out", "exported"]) == 2
    assert "llama.cpp knows two head dims at most" in capsys.readouterr().err
