import io
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from prism_transformer.cli import main as prism
from prism_transformer.cli.schedule import main
from prism_transformer.errors import InputError
from prism_transformer.model.head_schedule import ScheduleError
from prism_transformer.study import speed

SMALL = ["--layers", "12", "--d-model", "768", "--heads", "12"]
TEXT = "3x2,6x2,8x2,12x6"


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


@pytest.mark.parametrize(
    "argv",
    [
        ["suggest", *SMALL],
        ["list", *SMALL],
        ["list", "--layers", "48", "--d-model", "1600", "--heads", "25"],
        ["show", "prism", *SMALL],
        ["show", "shuffled-1", "--layers", "96", "--d-model", "12288", "--heads", "96"],
        ["check", TEXT, "--d-model", "768", "--tp", "2", "--device", "cuda-consumer"],
        ["check", "512x1,1024x1023", "--d-model", str(2**20), "--context", str(2**20), "--vocab-size", str(2**20)],
    ],
)
def test_output_fits_80_columns(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_suggest_shows_the_schedule_its_controls_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["suggest", *SMALL])
    out = capsys.readouterr().out

    assert out.startswith(f"{TEXT}\n")
    assert "123.6M" in out
    command = out[out.index("prism compare") :].partition("\n\n")[0].replace("\\\n", "").split()
    sizes = "--layers 12 --d-model 768 --heads 12 --context 1024 --data TEXT"
    assert command == f"prism compare --recipe small {sizes} --arms uniform sweep prism reversed --dry-run".split()


@pytest.mark.parametrize("sizes", ["4 64 4 64", "12 768 12 1024", "32 4096 32 8192"])
def test_the_suggested_command_is_accepted(
    sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of small models and large: a command that is refused tells nobody whether a schedule is better."""
    monkeypatch.setattr(speed, "training_speed", lambda *_, **__: speed.Speed(1e5, "measured here"))
    (tmp_path / "text.txt").write_text("A note about heads and layers. " * 2000, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    layers, d_model, heads, context = sizes.split()
    model = ["--layers", layers, "--d-model", d_model, "--heads", heads, "--context", context]

    command = run_json(capsys, "suggest", *model)["command"].replace("TEXT", "text.txt")

    assert prism([*command.split()[1:]]) == 0
    assert "reversed" in capsys.readouterr().out


def test_suggest_says_when_there_is_no_legal_widening() -> None:
    with pytest.raises(InputError, match="no legal widening"):
        main(["suggest", "--layers", "48", "--d-model", "1600", "--heads", "25"])


def test_check_prints_the_staircase_rules_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", TEXT, "--d-model", "768"])
    lines = capsys.readouterr().out.splitlines()

    rows = {line.split()[1]: line for line in lines if " × " in line and "█" in line}
    assert rows["3"].count("▌") == 3
    assert rows["12"].count("▌") == 12
    rules = {line.split()[1]: line.split()[0] for line in lines if line.startswith(("pass", "warn", "fail"))}
    assert rules == {
        "divisibility": "pass",
        "monotonicity": "pass",
        "boundary": "pass",
        "even-head-dim": "pass",
        "staircase": "pass",
        "baseline": "pass",
        "fused-kernel": "pass",
        "alignment": "pass",
        "tensor-parallel": "warn",
    }
    table = {line[:30].strip(): line[30:].split() for line in lines if line[:30].strip() and "." in line[-6:]}
    # hand-worked in tests/test_cost.py; 106 of 144 heads
    assert table["parameters"] == ["123.6M", "123.6M", "1.000"]
    assert table["matrix FLOPs a token, forward"] == ["284.8M", "284.8M", "1.000"]
    assert table["softmax entries a sequence"] == ["111.1M", "151M", "0.736"]


def test_json_holds_exact_figures(capsys: pytest.CaptureFixture[str]) -> None:
    data = run_json(capsys, "check", "3,3,6,6,8,8,12*6", "--d-model", "768", "--context", "10", "--vocab-size", "100")

    assert data["schedule"] == TEXT
    assert data["heads"] == [3, 3, 6, 6, 8, 8, 12, 12, 12, 12, 12, 12]
    assert data["head_dims"][:3] == [256, 256, 128]
    assert data["cost"]["softmax_entries"] == 106 * 100
    assert data["cost"]["parameters"] == data["uniform"]["cost"]["parameters"] == 100 * 768 + 12 * 7_079_424 + 768
    assert data["uniform"]["heads"] == 12
    assert {rule["outcome"] for rule in data["rules"]} == {"pass", "warn"}
    assert run_json(capsys, "suggest", *SMALL)["suggestion"]["schedule"] == TEXT


def test_check_exits_0_for_a_control_that_breaks_the_order_and_2_when_strict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "12x6,8x2,6x2,3x2", "--d-model", "768"]) == 0
    assert "fail  monotonicity" in capsys.readouterr().out
    assert main(["check", "12x6,8x2,6x2,3x2", "--d-model", "768", "--strict"]) == 2
    assert main(["check", TEXT, "--d-model", "768", "--strict"]) == 0  # warnings do not count
    assert main(["check", TEXT, "--d-model", "768", "--strict", "--tp", "2"]) == 2
    assert main(["check", "6x12", "--d-model", "768", "--strict", "--heads", "12"]) == 2  # not the base's boundary


def test_list_names_the_families_and_counts_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    data = run_json(capsys, "list", *SMALL)

    assert list(data["schedules"]) == [
        *("uniform", "uniform-3", "uniform-4", "uniform-6", "uniform-8", "uniform-12"),
        *("prism", "reversed", "shuffled-1", "linear"),
    ]
    # 7 divisors of 768 up to 12: 7^12 lists, C(17, 6) monotone ones that end at 12; five without 1 and 2: C(15, 4)
    assert data["space"]["relaxed"] == 7**12
    assert data["space"]["hard_rules"] == 12376
    assert data["space"]["fused"] == 1365
    # steps from 3, 4, 6, 8 of 2 to 4 layers before at least 6 at the base: one step 4 x 3, two 6 x (2,2 2,3 3,2 2,4
    # 3,3 4,2), three 4 x (2,2,2), and none
    assert data["space"]["guidelines"] == 4 * 3 + 6 * 6 + 4 * 1 + 1
    missing = run_json(capsys, "list", "--layers", "48", "--d-model", "1600", "--heads", "25")["missing"]
    assert list(missing) == ["prism", "reversed", "shuffled-1"]


def test_svg_is_written_once_and_never_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stairs.svg"
    main(["show", "prism", *SMALL, "--svg", str(path)])
    assert str(path) in capsys.readouterr().out
    assert ElementTree.parse(path).getroot().tag.endswith("svg")

    path.write_text("mine")
    with pytest.raises(InputError, match="exists and is not overwritten"):
        main(["show", "prism", *SMALL, "--svg", str(path)])
    assert path.read_text() == "mine"
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        main(["show", "prism", *SMALL, "--svg", str(tmp_path / "no" / "folder.svg")])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["check", TEXT, "--d-model", "768", "--kv-heads", "4"],
            "--kv-heads 4: grouped key-value heads are not supported",
        ),
        (["check", "3x11", "--d-model", "768", "--layers", "12"], "11 head counts for 12 layers; give 1 more"),
        (["check", "8x12", "--d-model", "780"], "heads[0..11]=8 does not divide d_model=780; nearest that do: 6, 10"),
        (["check", "3x999999999999", "--d-model", "768"], "out of range"),
        (["check", TEXT, "--d-model", "768", "--heads", "7"], "base heads: heads[0..11]=7 does not divide"),
        (["show", "prism", "--d-model", "768"], "'prism' needs --layers and --heads"),
        (["list", "--d-model", "768", "--layers", "12"], "list needs --heads"),
        (["show", "prsm", *SMALL], "unknown arm 'prsm'; nearest: prism"),
        (["show", "sweep", *SMALL], "'sweep' is 5 schedules; name one of them: uniform-3"),
        (["list", "--d-model", "768", "--layers", "12", "--heads", "7"], "base heads: heads[0..11]=7 does not divide"),
        (["show", "12x2", "--d-model", "768", "--context", "0", "--vocab-size", "-1"], "--context 0 is not positive"),
        (["check", TEXT, "--d-model", "768", "--tp", "0"], "tensor-parallel size 0 is not positive"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(argv: list[str], message: str) -> None:
    with pytest.raises((InputError, ScheduleError)) as caught:
        main(argv)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["chek", TEXT],
        ["check", TEXT],
        ["check", TEXT, "--d-model", "768", "--strict", "False"],
        ["show", "--lyers", "3"],
    ],
)
def test_a_command_line_that_does_not_parse_exits_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for no_color, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        main(["check", TEXT, "--d-model", "768"])
        assert ("\x1b[32mpass\x1b[0m  divisibility" in terminal.getvalue()) == coloured


def test_a_terminal_without_block_characters_gets_ascii() -> None:
    done = run_in_a_process(["check", TEXT, "--d-model", "768"], PYTHONIOENCODING="ascii")
    assert "###############|###############|" in done.stdout
    assert "3 x 256" in done.stdout


def test_starts_fast_because_it_imports_nothing_heavy() -> None:
    times = [os.times()]
    for _ in range(3):
        done = run_in_a_process(["suggest", *SMALL])
        times.append(os.times())
    used = [
        after.children_user + after.children_system - before.children_user - before.children_system
        for before, after in pairwise(times)
    ]
    assert done.stderr.split() == ["[]"]
    assert min(used) < 0.5  # seconds of processor time, which a busy machine stretches less than the clock's


def run_in_a_process(argv: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from prism_transformer.cli.schedule import main; main(sys.argv[1:])\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
