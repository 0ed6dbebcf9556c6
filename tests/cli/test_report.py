"""`prism report`: the result again, from what the runs have written or from another trainer's losses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prism_transformer.cli import compare as compare_verb
from prism_transformer.cli import main
from prism_transformer.study.worker import work

CSV = "arm,seed,step,tokens,loss\n" + "".join(
    f"{arm},{seed},10,1000,{loss + seed / 100}\n" for arm, loss in (("uniform", 3.4), ("prism", 3.3)) for seed in (0, 1)
)


def run(*argv: str) -> int:
    try:
        return main(["report", *argv])
    except SystemExit as ended:  # tyro's way out
        assert isinstance(ended.code, int)
        return ended.code


@pytest.fixture
def study(tiny_yaml: str, in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """A finished study in the folder "study"."""
    monkeypatch.setattr(compare_verb, "run_study", lambda study, say, **_: work(study, say=say))
    assert main(["compare", "--recipe", tiny_yaml, "--out", "study"]) == 0
    capsys.readouterr()
    return Path("study")


def test_the_report_of_a_study_is_written_again(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads((study / "results.json").read_text())
    (study / "results.json").unlink()
    (study / "report.html").unlink()
    assert run("study") == 0
    out, err = capsys.readouterr()
    assert "Verdict: " in out and "results: study/results.json" in out and err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert json.loads((study / "results.json").read_text()) == before
    assert (study / "report.html").exists()
    assert run("study", "--json") == 0
    assert json.loads(capsys.readouterr().out) == before


def test_the_pictures_are_written_as_files_where_asked(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not (study / "figures").exists()
    for _ in range(2):  # again, over its own
        assert run("study", "--figures") == 0
        told = " ".join(capsys.readouterr().out.split())
        assert f"pictures: {Path('study/figures/verdict.svg')}, " in told and told.endswith(", and as .png")
    for name in ("verdict", "loss-curves", "difference-curves"):
        assert (study / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "#0000" not in (study / f"figures/{name}.svg").read_text()  # no placeholder colour is left
    assert run("study", "--figures", "--json") == 0
    json.loads(capsys.readouterr().out)
    assert run("study", "--figures", "--brief") == 2
    assert "leave one out" in capsys.readouterr().err


def test_a_study_is_reported_as_far_as_it_is(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = study / "runs/prism/seed-1/metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-1]) + lines[-1][:20])  # killed while it wrote
    assert run("study") == 0
    assert "still to come: prism seed 1" in " ".join(capsys.readouterr().out.split())


def test_a_terminal_without_the_characters_of_a_table_gets_others(study: Path) -> None:
    command = [sys.executable, "-m", "prism_transformer", "report", "study"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert b"Verdict: " in done.stdout


def test_the_losses_of_another_trainer(in_empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("losses.csv").write_text(CSV)
    assert run("--from", "losses.csv") == 0
    out = capsys.readouterr().out
    assert "2 arms, 2 seeds" in out and "Verdict: " in out
    results = json.loads(Path("losses-report/results.json").read_text())
    assert results["arms"]["prism"]["val_loss"] == pytest.approx([3.3, 3.31])
    assert run("--from", "losses.csv", "--json", "--out", "elsewhere", "--primary", "prism") == 0
    assert json.loads(capsys.readouterr().out)["primary"] == "prism"
    assert run("--from", "losses.csv") == 0, "its own folder is written again"


@pytest.mark.parametrize("mark", ["study.yaml", "search.yaml"])
def test_the_losses_of_another_trainer_do_not_replace_a_study_or_a_search(
    mark: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("losses.csv").write_text(CSV)
    for out in (Path("mine"), Path("losses-report")):  # named, and by default
        out.mkdir()
        (out / mark).write_text("")
        (out / "results.json").write_text("{}")
        assert run("--from", "losses.csv", *(["--out", "mine"] if out.name == "mine" else [])) == 2
        assert f"{out} has a {mark}, whose results would be lost; choose another --out" in capsys.readouterr().err
        assert {path.name: path.read_text() for path in out.iterdir()} == {mark: "", "results.json": "{}"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give one study folder, or --from and a file of losses"),
        (["a", "b"], "give one study folder"),
        (["a", "--from", "losses.csv"], "give one study folder"),
        (["nowhere"], "nowhere is no study: it has no study.yaml"),
        (["folder"], "folder is no study: it has no study.yaml"),
        (["losses.csv"], "losses.csv is no study"),
        (["--from", "none.csv"], "none.csv"),
        (["--from", "losses.csv", "--primary", "prsm"], "'prsm'"),
        (["--from", "losses.csv", "--out", "folder"], "folder holds something else (mine.txt)"),
        (["--from", "losses.csv", "--out", "losses.csv"], "losses.csv is a file; give a folder"),
        (["folder", "--out", "elsewhere"], "--out belongs to --from"),
        (["folder", "--primary", "prism", "--baseline", "uniform"], "--baseline and --primary belong to --from"),
        (["folder", "--jsn"], "Unrecognized options: --jsn"),
        (["folder", "--json", "False"], "--json False: a flag takes no value"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    argv: list[str], message: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("losses.csv").write_text(CSV)
    Path("folder").mkdir()
    Path("folder/mine.txt").write_text("mine")
    before = sorted(in_empty_folder.glob("**/*"))
    assert run(*argv) == 2
    out, err = capsys.readouterr()
    assert message in err and out == "" and "Traceback" not in err
    assert sorted(in_empty_folder.glob("**/*")) == before
