"""Completion in the shell: the script that `prism --completion` prints, run by a real bash."""

import re
import shutil
import subprocess

import pytest

from prism_transformer.cli import VERBS, main
from prism_transformer.cli.completion import OPTION, SUBCOMMAND, _help, script

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture(scope="module")
def of_bash() -> str:
    return script("bash")


@needs_bash
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["re"], {"report", "reproduce"}),
        (["schedule", "s"], {"suggest", "show"}),
        (["schedule", "show", "--d"], {"--d-model", "--device", "--dtype"}),
        (["compare", "--rope-w"], {"--rope-width"}),
        (["compare", "--rope-width", ""], {"head", "base"}),
        (["train", "--dtype", "b"], {"bfloat16"}),
        (["data", "prepare", "--val"], {"--validation-share"}),
        (["import", "--sch"], {"--schedule"}),
        (["train", "runs"], set()),  # left to the shell: names of files
    ],
)
def test_what_is_offered(typed: list[str], wanted: set[str], of_bash: str) -> None:
    words = " ".join(f"'{word}'" for word in ["prism", *typed])
    asked = f'COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _prism; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{of_bash}\n{asked}"], capture_output=True, text=True, check=True)
    assert {word for word in done.stdout.split("\n") if word} == wanted, done.stderr


def test_every_verb_is_known(of_bash: str) -> None:
    for verb in VERBS:
        assert f'"{verb} "*) known="' in of_bash
        assert f'"{verb} "*) known=""' not in of_bash


def test_the_command_line(of_bash: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "zsh"]) == 0
    assert capsys.readouterr().out.endswith(of_bash), "the same, after bashcompinit"
    assert main(["--completion", "fish"]) == 2
    assert "choose one of: bash, zsh" in capsys.readouterr().err
    assert main(["--completion"]) == 2


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_does(verb: str) -> None:
    """In words of its own, besides its name, its kind and its default."""
    text = _help([verb])
    for part in [text, *(_help([verb, name]) for name in SUBCOMMAND.findall(text))]:
        for entry in re.split(r"^(?=  (?:-h, )?--[a-z])", part, flags=re.MULTILINE)[1:]:
            said = re.sub(r"\((default|required).*", "", re.split(r"\n {1,2}-{9}", entry)[0], flags=re.DOTALL)
            assert len(said.split()) >= 4, f"{OPTION.findall(entry)} of {verb}: {said!r}"
