"""`prism compare` as a user runs it: stopped, killed, shared, repeated, extended, and with everything wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prism_transformer.cli import compare as compare_verb
from prism_transformer.cli import main
from prism_transformer.study import compare as compare_module
from prism_transformer.study import speed
from prism_transformer.study.estimate import Speed
from prism_transformer.study.folder import Study
from prism_transformer.study.worker import work
from prism_transformer.training.loop import train

RUNS = ["uniform/seed-0", "prism/seed-0", "prism/seed-1", "uniform/seed-1"]  # in their order
STEPS = 400  # some seconds, so that a run can be met in its middle


def run(*argv: str) -> int:
    try:
        return main(["compare", *argv])
    except SystemExit as ended:  # tyro's way out
        assert isinstance(ended.code, int)
        return ended.code


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Workers in this process; the list holds how many runs each call trained."""
    trained: list[int] = []

    def run_study(study: Study, *, say: Callable[[str], None], **_: object) -> None:
        trained.append(work(study, say=say))

    for module in (compare_module, compare_verb):
        monkeypatch.setattr(module, "run_study", run_study)
    return trained


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tiny_yaml: str, in_empty_folder: Path) -> Iterator[Start]:
    """start(…): `prism compare` into the folder "study", in a session of its own, as a terminal would."""
    processes: list[subprocess.Popen[str]] = []

    def of(*argv: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "prism_transformer", "compare", "--recipe", tiny_yaml, "--out", "study"]
        command += ["--tokens", str(STEPS * 64)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        processes.append(subprocess.Popen([*command, *argv], text=True, start_new_session=True, **pipes))
        return processes[-1]

    yield of
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def metrics(name: str) -> list[dict[str, object]]:
    path = Path("study/runs") / name / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    for _ in range(2400):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("nothing came in two minutes")


def is_in_the_middle_of(name: str) -> bool:
    path = Path("study/runs") / name / "metrics.jsonl"
    return path.exists() and 40 <= int(str((metrics(name) or [{"step": 0}])[-1]["step"])) < 250


def worker_of(name: str) -> int:
    return int((Path("study/runs") / name / ".lock-owner").read_text().split()[1])


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_study_that_was_stopped_killed_and_shared_equals_the_unbroken_one(start: Start) -> None:
    # Ctrl-C in a terminal reaches the whole group of processes
    first = start()
    wait_for(lambda: is_in_the_middle_of(RUNS[1]), first)
    os.killpg(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=600)
    assert first.returncode == 130 and out == "" and "Traceback" not in err
    assert "1 of 4 runs are finished and safe; the same command goes on" in err
    assert list(Path("study/runs/prism/seed-0/checkpoints").glob("step-*")), "the run in its middle was saved"
    for beginning in (
        "reading text.txt",
        "text: 4,1",
        "device cpu, float32: as asked",
        "training loss ",
        "[1/4] seed 0",
    ):
        assert sum(line.startswith(beginning) for line in err.splitlines()) == 1, (beginning, err)
    assert any(line.startswith("[1/4] seed 0") and line.endswith(" left") for line in err.splitlines())
    finished = {path: path.stat().st_mtime_ns for path in Path("study/runs/uniform/seed-0").glob("**/*")}

    # two processes share the rest; a worker is killed without a word, and what it held is taken over
    processes = [start("--json"), start("--json")]
    wait_for(lambda: is_in_the_middle_of(RUNS[2]), processes[0])
    os.kill(worker_of(RUNS[2]), signal.SIGKILL)
    ends = [(*process.communicate(timeout=600), process.returncode) for process in processes]
    _, killed, code = max(ends, key=lambda end: end[2])
    assert code == 3 and "SIGKILL ended a worker" in killed and "finished and safe" in killed
    out, _, code = min(ends, key=lambda end: end[2])
    assert code == 0, ends
    assert any("going on from study/runs/prism/seed-0/checkpoints/step-" in err for _, err, _ in ends)
    assert not any("[1/4]" in err for _, err, _ in ends), "what had ended before is not told again"
    results = json.loads(out)
    assert results == json.loads(Path("study/results.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished run is never run again"
    for name in RUNS:
        steps = [record["step"] for record in metrics(name) if "loss" in record]
        assert steps == [1, *range(10, STEPS + 1, 10)], "each step of each run once"

    # the losses of the stopped and the killed run are those of unbroken ones
    study = Study.open(Path("study"))
    Path("study/runs").rename("study/broken")
    for run in study.runs[1:3]:
        train(study.run_recipe(run), study.run_folder(run), corpus=study.open_corpus(), say=lambda sentence: None)
        assert study.result(run).val_loss == results["arms"][run.arm]["val_loss"][run.seed]


def test_json_is_all_of_stdout_and_the_same_command_says_that_it_is_finished(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(compare_verb, "run_study", lambda study, say, **_: work(study, say=say))
        assert run("--recipe", tiny_yaml, "--json") == 0
    results = json.loads(capsys.readouterr().out)
    assert results["seeds"] == [0, 1]
    assert run("--recipe", tiny_yaml) == 0  # without a process: nothing is left
    out, err = capsys.readouterr()
    assert "all 4 runs of studies/tiny are finished: nothing is left to train" in err
    assert "results: studies/tiny/results.json" in out


def test_the_same_command_without_a_recipe_goes_on_with_what_its_budget_picked(
    tiny_yaml: str,
    in_empty_folder: Path,
    in_process: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """640 tokens a run and about 30 for its evaluation, at 1000 a second, after 10 s of start: 4 seeds of 2 arms are
    15.4 s, 5 are 16.7 s. No recipe has 4 seeds of its own."""
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1000.0, "measured here"))
    monkeypatch.setattr(speed, "matrix_peak", lambda *_: 1e15)
    sizes = "--layers 2 --d-model 16 --heads 4 --context 16 --tokens 640 --tokens-per-step 64 --micro-batch 4"
    rest = "--evaluations 1 --evaluation-tokens 100 --tokenizer bytes --validation-share 0.02 --device cpu --threads 1"
    text = str(Path(tiny_yaml).with_name("text.txt"))
    command = [*sizes.split(), *rest.split(), "--budget", "16s", "--jobs", "1", "--data", text, "--json"]
    assert run(*command) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [0, 1, 2, 3]
    assert run(*command) == 0
    without = [word for word in command if word not in ("--budget", "16s")]
    assert run(*without) == 0, "the budget that it began with"
    assert in_process == [8, 0, 0]


def test_a_study_whose_runs_have_all_diverged_ends_with_3(
    tiny_yaml: str, in_empty_folder: Path, in_process: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run("--recipe", tiny_yaml, "--lr", "1e9") == 3
        out, err = capsys.readouterr()
        assert "diverged: prism seed 0" in " ".join(out.split())
        assert err.splitlines()[-1].startswith("error: every run has diverged; lower lr")
    assert in_process == [4, 0]
    assert json.loads(Path("studies/tiny/results.json").read_text())["arms"]["prism"]["val_loss"] == [None, None]


def test_more_threads_than_cores_and_a_repeated_text_are_warned_of_once(
    tiny_yaml: str, in_empty_folder: Path, in_process: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bytes.txt").write_bytes(b"caf\xe9 and more of it\n" * 40)
    Path("docs.jsonl").write_text('{"text": "short"}\n' * 40 + '{"text": "brief"}\n' * 40)
    threads = str((os.cpu_count() or 1) + 1)
    data = ["--data", "bytes.txt", "docs.jsonl", "--validation-share", "0.3"]
    assert run("--recipe", tiny_yaml, *data, "--tokens", "6400", "--seeds", "1", "--threads", threads) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum("no UTF-8; each became U+FFFD" in line for line in lines) == 1
    assert sum("epochs: beyond 4" in line for line in lines) == 1
    assert any(f"warning: threads={threads} is more than the" in line for line in lines)


def test_a_dry_run_names_text_that_is_not_there_before_it_measures(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "training_speed", None)
    Path("empty.txt").touch()
    assert run("--recipe", tiny_yaml, "--data", "none.txt", "empty.txt", "--dry-run") == 2
    err = capsys.readouterr().err
    assert "none.txt: no such file or folder" in err and "empty.txt: the file is empty" in err


def test_a_dry_run_beside_a_study_says_what_is_left(
    tiny_yaml: str,
    in_empty_folder: Path,
    in_process: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1000.0, "measured here"))
    assert run("--recipe", tiny_yaml) == 0
    threads = str((os.cpu_count() or 1) + 1)
    assert run("--recipe", tiny_yaml, "--dry-run", "--threads", threads) == 0
    err = capsys.readouterr().err
    assert "studies/tiny: 4 runs finished; nothing is left to train" in err
    assert f"warning: threads={threads} is more than the" in err
    assert run("--recipe", tiny_yaml, "--dry-run", "--seeds", "3") == 0
    # 2 runs of 640 tokens and their evaluations at 1000 tokens/s, after 10 s of start
    assert "studies/tiny: 4 runs finished; the rest takes about 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "messages"),
    [
        (["--data", "none.txt"], ["none.txt: no such file or folder"]),
        (["--data", "empty.txt"], ["empty.txt: the file is empty"]),
        (["--data", "folder"], ["folder: no text in it"]),
        (["--data", "short.txt"], ["4 tokens, but a window of context 16 takes 17"]),
        (["--data", "broken.jsonl"], ["broken.jsonl, line 2: no JSON"]),
        (["--data", "other.jsonl"], ["other.jsonl, line 1", "'text'"]),
        (["--data"], ["--data needs a path"]),
        (["--heads", "5"], ["heads[0..1]=5 does not divide d_model=16; nearest that do: 4, 8"]),
        (["--layers", "12", "--arms", "4x11"], ["11 head counts for 12 layers"]),
        (["--arms", "prism", "1x1,4x1"], ["have the same heads (1x1,4x1) and the same settings"]),
        (["--arms", "prsm", "--seeds", "0", "--jobs", "0"], ["arm 'prsm'; nearest: prism", "seeds=0", "jobs=0"]),
        (["--arms", "../up=1x2"], ["'../up' is no name"]),
        (["--arms", "uniform"], ["a study needs an arm besides uniform"]),
        (["--primary", "prsm"], ["primary arm 'prsm' is not an arm besides the baseline; did you mean 'prism'?"]),
        (["--schedule", "prism"], ["a comparison takes its schedules as --arms"]),
        (["--recipe", "demo"], ["--recipe is given 2 times"]),
        (["--device", "cuda:99"], ["device=cuda:99 is not here"]),
        (["--calibrate", "False"], ["--calibrate False: a flag takes no value"]),
        (["--json=False"], ["--json False: a flag takes no value"]),
        (["--seed", "0.5"], ["--seed"]),
        (["--sedes", "3"], ["Unrecognized options: --sedes", "--seeds INT"]),
        (["--out", "short.txt"], ["short.txt is a file; give a folder"]),
        (["--out", "short.txt/x"], ["short.txt", "Not a directory"]),
        (["--out", "."], [". holds something else (broken.jsonl, empty.txt, folder); use a new folder"]),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    argv: list[str],
    messages: list[str],
    tiny_yaml: str,
    in_empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("empty.txt").write_text("")
    Path("short.txt").write_text("abc def")
    Path("folder").mkdir()
    Path("broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    Path("other.jsonl").write_text('{"body": "a"}\n')
    before = sorted(in_empty_folder.glob("**/*"))
    assert run("--recipe", tiny_yaml, *argv) == 2
    out, err = capsys.readouterr()
    assert all(message in err for message in messages), err
    assert out == "" and "Traceback" not in err
    assert sorted(in_empty_folder.glob("**/*")) in (before, sorted([*before, in_empty_folder / "studies"]))


@pytest.mark.parametrize(
    ("study", "messages"),
    [
        ("{seed: 3}", ["recipe mine: study: no setting 'seed'; did you mean 'seeds'?"]),
        (
            "{seeds: many, arms: prism}",
            ["study.seeds='many' must be a whole number", "study.arms='prism' must be a list"],
        ),
        ("5", ["recipe mine: study must be a mapping of settings, not 5"]),
    ],
)
def test_broken_study_settings_of_a_recipe_are_named(
    study: str, messages: list[str], in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(f"study: {study}\n")
    assert run("--recipe", "mine.yaml") == 2
    err = capsys.readouterr().err
    assert all(message in err for message in messages), err


def test_changed_settings_and_a_truncated_shard_are_named_over_a_study(
    tiny_yaml: str, in_empty_folder: Path, in_process: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml) == 0
    before = Path("studies/tiny/results.json").read_bytes()
    capsys.readouterr()
    assert run("--recipe", tiny_yaml, "--tokens", "1280", "--seeds", "1", "--arms", "reversed") == 2
    err = capsys.readouterr().err
    for line in ("recipe.training.tokens: 640 -> 1280", "study.seeds: 2 -> 1", "arms: prism is missing"):
        assert line in err
    shard = Path("studies/tiny/data/train_000000.bin")
    shard.write_bytes(shard.read_bytes()[:-10])
    assert run("--recipe", tiny_yaml, "--seeds", "3") == 2
    assert "train_000000.bin: " in (err := capsys.readouterr().err) and "truncated" in err
    assert Path("studies/tiny/results.json").read_bytes() == before and in_process == [4]


def test_a_recipe_elsewhere_names_the_study_after_its_file(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not by its path, which would be the place of the recipe itself."""
    assert Path(tiny_yaml).is_absolute()
    assert run("--recipe", tiny_yaml, "--data", "none.txt") == 2
    assert "is a file" not in capsys.readouterr().err


def test_a_spread_that_was_measured_elsewhere_is_not_taken_for_this_study(
    in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: Speed(1000.0, "measured here"))

    def detectable(*argv: str) -> object:
        assert run("--recipe", "demo", "--dry-run", "--json", *argv) == 0
        return json.loads(capsys.readouterr().out)["detectable"]

    recipe_own = detectable("--threads", "2", "--seeds", "4")
    assert isinstance(recipe_own, float)
    assert detectable("--tokens", "1024000") is None
    for option in ("--expected-sd", "--expected_sd"):
        assert isinstance(detectable("--tokens", "1024000", option, "0.01"), float)


def test_torchrun_is_refused_since_every_rank_would_begin_the_study(
    in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("--recipe", "demo", "--dry-run") == 2
    assert "without torchrun" in capsys.readouterr().err
