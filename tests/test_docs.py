"""Every command and snippet of README.md and docs/ works. Trainings are stopped at their plan.

A page is run in a home that has what its reader has by then: notes, a run, a study. In a command RUN and STUDY stand
for those, and what has an ellipsis or a shell variable is no command to run. The log of experiments (docs/lab/) is left
out: it tells what was run at its date.
"""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from prism_transformer.cli import VERBS, main
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed
from prism_transformer.training.recipe_files import load_recipe

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(path for path in sorted(ROOT.glob("docs/**/*.md")) if path.parent.name != "lab")]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
SHELL = ("", "sh", "bash", "console")
STOPPED_AT_THE_PLAN = ("compare", "train", "reproduce", "search")
ON_THE_NETWORK = ("data prepare fineweb", "data prepare fineweb-gpt2")
TORCHRUN = re.compile(r"torchrun .*?-m prism_transformer ")
LOSSES = "arm,seed,step,tokens,loss\nuniform,0,9,900,3.4\nuniform,1,9,900,3.5\nprism,0,9,900,3.3\nprism,1,9,900,3.4\n"
PLACEHOLDERS = {"RUN": "runs/first", "STUDY": "studies/notes"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, content) of each block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shell_lines(page: Path) -> list[str]:
    """The lines of the blocks for the shell, continued ones joined, without their comments."""
    text = "\n".join(content for language, content in blocks(page) if language in SHELL)
    return [line.split("  #")[0].strip() for line in text.replace("\\\n", " ").splitlines()]


def commands(page: Path) -> list[str]:
    """Each command of the page once: those of its blocks, and those with an option within its sentences."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    within = [re.sub(r"\s+", " ", code) for code in re.findall(r"`(prism [^`]+)`", prose) if " --" in code]
    found = [TORCHRUN.sub("prism ", line) for line in shell_lines(page)] + within
    found = [re.sub(r"\b(RUN|STUDY)\b", lambda match: PLACEHOLDERS[match[1]], command) for command in found]
    whole = [line for line in found if re.match(r"prism \S", line) and not re.search(r"[…$]|\b[A-Z]{3,}\b", line)]
    return list(dict.fromkeys(whole))


@pytest.fixture(scope="module")
def furnished(trained_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has at home by then: notes, text, tokens, a run and a study."""
    folder = tmp_path_factory.mktemp("furnished")
    for name in ("notes", "text", "shared"):
        (folder / name).mkdir()
    words = "A note about heads and layers, and what they see. " * 400
    (folder / "notes" / "a.md").write_text(words, encoding="utf-8")
    (folder / "text" / "a.jsonl").write_text(json.dumps({"text": words}) + "\n", encoding="utf-8")
    shutil.copytree(trained_study, folder / "studies" / "notes")
    for name in ("runs/first", "shared/runs/small", "shared/runs/large"):
        shutil.copytree(trained_study / "runs" / "prism" / "seed-0", folder / name)
        shutil.copytree(trained_study / "data", folder / name / "data")
    shutil.copytree(trained_study / "data", folder / "data" / "fineweb")
    (folder / "losses.csv").write_text(LOSSES, encoding="utf-8")
    _make_tasks(folder / "items")
    _make_llama(folder / "llama-folder", trained_study / "data" / "tokenizer")
    return folder


@pytest.fixture
def home(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and current folder for one page, so that pages do not meet each other's files; nothing is measured."""
    folder = tmp_path / "home"
    shutil.copytree(furnished, folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))  # Windows
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1e5, "measured here"))
    return folder


def _make_tasks(folder: Path) -> None:
    """Items of the tasks that the pages name, so that no network is needed."""
    folder.mkdir()
    choices = {"goal": "How to feed a cat?", "sol1": "Give the cat fish.", "sol2": "Give the fish the cat.", "label": 0}
    question = {"question": "What does a fish do?", "choices": ["swim", "fly", "read"], "label": 0}
    for name, item in (("piqa_validation", choices), ("arc_easy_test", question)):
        (folder / f"{name}.jsonl").write_text(json.dumps(item) + "\n", encoding="utf-8")


def _make_llama(folder: Path, tokenizer: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes)).save_pretrained(folder)
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)


def run(command: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command of a page, as far as its plan where it would train."""
    arguments = shlex.split(command.replace(" /shared/", f" {home}/shared/"))[1:]
    verb = arguments[0]
    if verb in STOPPED_AT_THE_PLAN and not {"--dry-run", "--help"} & set(arguments):
        arguments.append("--dry-run")
    if verb == "compare" and "--recipe" not in arguments:
        arguments += ["--recipe", "demo"]  # choosing a recipe measures the machine: tests/study/test_budget.py
    if verb == "bench":
        arguments += ["--rounds", "3", "--turn-seconds", "0.01", "--no-memory"]
    if verb == "eval" and "--tasks" in arguments:
        pytest.importorskip("lm_eval")
        arguments += ["--eval-data", "items"]
    if command.startswith(tuple(f"prism {start}" for start in ON_THE_NETWORK)):
        monkeypatch.setattr("prism_transformer.cli.data._run", lambda *_: print("fetched") or 0)
    try:
        code = main(arguments)
    except SystemExit as end:  # a help text, or an option that is not there
        code = end.code
    assert code == 0, command


def write_files(page: Path, home: Path) -> None:
    """The files that the page shows: YAML that begins with its name, and losses in place of those that are there."""
    for language, content in blocks(page):
        if language == "yaml" and (name := re.match(r"# (\S+\.yaml)\n", content)):
            (home / name[1]).write_text(content, encoding="utf-8")
            load_recipe(home / name[1]).recipe.check()
        if language == "csv":
            (home / "losses.csv").write_text(content, encoding="utf-8")


def test_every_verb_has_a_command_on_a_page():
    found = {command.split()[1] for page in PAGES for command in commands(page)}
    assert set(VERBS) - found == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_page(page, home, monkeypatch, capsys):
    """The files of a page, its commands, and its snippets, which go on from each other."""
    write_files(page, home)
    for command in commands(page):
        run(command, home, monkeypatch)
        assert capsys.readouterr().out.strip(), command
    names = {}
    for language, content in blocks(page):
        if language == "python":
            exec(compile(content, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_verbs_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    in_blocks = [line.split()[1] for line in shell_lines(page) if re.match(r"prism [a-z]", line)]
    for verb in in_blocks + re.findall(r"`prism ([a-z]+)[ `]", text):
        assert verb in VERBS
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target


def test_the_log_lists_its_entries():
    log = ROOT / "docs" / "lab"
    listed = re.findall(r"\]\((\S+)\)", (log / "index.md").read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in log.glob("*.md") if path.name != "index.md")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in shell_lines(page) if line[:5] == "make "}))
def test_make_target_exists(line):
    done = subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_tree_of_the_rooms():
    """The README and the page on the architecture name the rooms that are there."""
    package = ROOT / "src" / "prism_transformer"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")} | {"recipes"}
    readme, architecture = (
        set(re.findall(r"^  (\w+)/ ", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
        for page in ("README.md", "docs/architecture.md")
    )
    assert readme <= rooms
    assert architecture == rooms
