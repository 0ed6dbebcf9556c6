"""prism generate: the text to standard output, everything else to standard error."""

import json

import pytest

from prism_transformer.cli import main


@pytest.fixture
def run(trained_study):
    return str(trained_study / "runs" / "prism" / "seed-0")


def test_the_text_streams_behind_its_prompt(run, capsys):
    assert main(["generate", run, "The cat", "--temperature", "0", "--max-tokens", "6"]) == 0
    streamed = capsys.readouterr()
    assert streamed.out.startswith("The cat") and streamed.out.endswith("\n")
    assert "tokens/s; seed 0" in streamed.err
    assert main(["generate", run, "The cat", "--temperature", "0", "--max-tokens", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "The cat" + found["text"] + "\n" == streamed.out
    assert (found["tokens"], found["ended"]) == (6, "length")


def test_prompts_of_a_file_become_json_lines(run, in_empty_folder, capsys):
    (in_empty_folder / "prompts.txt").write_text("The cat\n\nThe dog sees\nThe\n")
    options = ["--temperature", "0", "--max-tokens", "4"]
    assert main(["generate", run, "--prompts", "prompts.txt", "--batch-size", "2", *options]) == 0
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [each["prompt"] for each in found] == ["The cat", "The dog sees", "The"]
    assert "in 3 texts" in printed.err
    lines = "".join(json.dumps({"prompt": each["prompt"]}) + "\n" for each in found)
    (in_empty_folder / "prompts.jsonl").write_text(lines)
    assert main(["generate", run, "--prompts", "prompts.jsonl", *options]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found


def test_a_line_of_prompts_ends_at_its_end_alone(run, in_empty_folder, capsys):
    """U+2028 and U+0085 within a text are no ends of lines, and JSON leaves them as they are."""
    prompt = "The\u2028cat\x85sees"
    (in_empty_folder / "prompts.jsonl").write_text(json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n", "utf-8")
    assert main(["generate", run, "--prompts", "prompts.jsonl", "--max-tokens", "2"]) == 0
    (line,) = capsys.readouterr().out.strip("\n").split("\n")
    assert json.loads(line)["prompt"] == prompt


def test_a_prompt_that_comes_again_gets_another_text(run, in_empty_folder, capsys):
    (in_empty_folder / "prompts.txt").write_text("The cat\n" * 3)
    options = ["--prompts", "prompts.txt", "--batch-size", "1", "--temperature", "1.5", "--max-tokens", "12"]
    assert main(["generate", run, *options]) == 0
    printed = capsys.readouterr().out
    assert len({json.loads(line)["text"] for line in printed.splitlines()}) == 3
    assert main(["generate", run, *options]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give a prompt"),
        (["x", "--prompts", "absent.txt"], "give a prompt"),
        (["--prompts", "absent.txt"], "absent.txt: No such file"),
        (["x", "--max-tokens", "0"], "--max-tokens 0 must be at least 1"),
        (["x", "--temperature", "-1"], "temperature -1.0 must be 0"),
        (["x", "--stop", ""], "--stop ''"),
        (["The cat sees the dog. " * 20], "give fewer"),
    ],
)
def test_bad_input_is_told(run, in_empty_folder, capsys, arguments, told):
    assert main(["generate", run, *arguments]) == 2
    assert told in capsys.readouterr().err
