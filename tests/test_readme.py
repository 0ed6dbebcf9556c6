"""Every command and snippet of the README works. Trainings are stopped at their plan."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from prism_transformer.cli import VERBS, main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
SHELL = [line.split("  #")[0].strip() for kind, block in BLOCKS if kind == "" for line in block.splitlines()]
COMMANDS = [line for line in SHELL if re.match(rf"prism ({'|'.join(VERBS)}) ", line)]
COMMANDS += [code for code in re.findall(r"`(prism [^`]+)`", README) if " --" in code]
TRAINING = ("compare", "train")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with notes in it, as the README's reader has."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("A note about heads and layers, and what they see. " * 400, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_commands_to_test():
    assert len(COMMANDS) >= 6
    assert {command.split()[1] for command in COMMANDS} >= {"schedule", "compare", "train", "data"}


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, home, capsys):
    arguments = shlex.split(command)[1:]
    if arguments[0] in TRAINING and "--dry-run" not in arguments:
        arguments.append("--dry-run")
    if arguments[0] == "compare" and "--recipe" not in arguments:
        arguments += ["--recipe", "demo"]  # choosing a recipe measures the machine: tests/study/test_budget.py
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip()


def test_snippets():
    snippets = [block for kind, block in BLOCKS if kind == "python"]
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("command", [line for line in SHELL if line.startswith("make ")])
def test_make_target_exists(command):
    done = subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pictures_and_folders_exist():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path
    for folder in re.findall(r"^  (\w+)/ ", README, re.MULTILINE):
        assert (ROOT / "src" / "prism_transformer" / folder).is_dir(), folder
