from typing import Any

import pytest
from rich.console import Console

from prism_transformer.study.measured import ArmInfo
from prism_transformer.study.results import analyse
from prism_transformer.study.table import terminal_table

from .fake_study import arms, endpoint, run, runs


def shown(results: dict[str, Any], width: int) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(terminal_table(results, width))
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_off(width: int) -> None:
    text = shown(analyse(arms(), runs(5), endpoint(5)), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text
    for word in ("prism", "reversed", "cannot tell" if width >= 80 else "cannot", "Verdict:", "Calibration:"):
        assert word in text


@pytest.mark.parametrize("width", range(60, 100, 7))
def test_a_number_and_its_percent_sign_stay_on_one_line(width: int) -> None:
    text = shown(analyse(arms(), runs(5), endpoint(5)), width)
    assert " %" in text and not [line for line in text.splitlines() if line.lstrip().startswith("%")]


@pytest.mark.parametrize(("speed", "told"), [(41.0, True), (50.0, False)])
def test_nothing_is_said_at_equal_time_where_equal_heads_differ_in_speed(speed: float, told: bool) -> None:
    results = analyse(arms(), runs(5), endpoint(5))
    results["arms"]["uniform, 20 % fewer tokens"]["relative_speed"] = speed / 40.0
    text = " ".join(shown(results, 80).split())
    assert ("At equal time on this device (an estimate" in text) == told
    assert ("differ in speed by 25 % here" in text) != told


def test_a_row_by_hand() -> None:
    losses = {"uniform": [3.3748, 3.3721, 3.3775], "prism": [3.3604, 3.3598, 3.3610]}
    measured = [
        run(arm, s, loss, tokens_per_second=50.0 if arm == "prism" else 40.0)
        for arm in losses
        for s, loss in enumerate(losses[arm])
    ]
    lines = shown(analyse(arms(("uniform", "prism")), measured, endpoint(3)), 120).splitlines()
    prism = next(line.split() for line in lines if line.startswith("prism"))
    # mean -.0144, half width 4.302653 x .0021 / sqrt(3) = .0052
    assert " ".join(prism) == "prism 1x1,2x1,4x2 3.3604 ± 0.0006 −0.0144 [−0.0196, −0.0092] 3/3 ×1.25 lower"


def test_a_long_name_is_broken_before_its_settings() -> None:
    tilted = ArmInfo(
        name="prism@rope_width=base", heads=(1, 2, 4, 4), role="secondary", settings={"rope_width": "base"}
    )
    measured = runs(3, names=("uniform", "prism")) + [run(tilted.name, seed, 3.9) for seed in range(3)]
    lines = shown(analyse([*arms(("uniform", "prism")), tilted], measured, endpoint(3)), 80).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("@rope_width"))
    assert lines[first - 1].startswith("prism ") and lines[first + 1].startswith("=base")


def test_runs_that_are_not_there_show_as_dashes_and_pairs() -> None:
    measured = [run("uniform", 0, 3.9), run("prism", 0, None, status="diverged")]
    text = shown(analyse(arms(("uniform", "prism")), measured, endpoint(1)), 80)
    prism = next(line.split() for line in text.splitlines() if line.startswith("prism"))
    assert prism == ["prism", "1x1,2x1,4x2", "–", "–", "0/1", "–", "cannot", "tell"]
    assert "diverged: prism seed 0" in " ".join(text.split())


def test_why_an_interval_beside_zero_decides_nothing_is_told() -> None:
    names = ("uniform", "prism", "uniform-2", "uniform-1", "reversed")
    differences = {
        "prism": [0.0, 0.01, -0.01],
        "uniform-2": [0.010, 0.017, 0.024],
        "uniform-1": [0, 0.01, -0.01],
        "reversed": [0, 0.01, -0.01],
    }
    measured = [run("uniform", seed, 3.9) for seed in range(3)]
    measured += [
        run(name, seed, 3.9 + value) for name, values in differences.items() for seed, value in enumerate(values)
    ]
    # uniform-2: t = .017 / (.007 / sqrt 3) = 4.21 < 4.30 would not exclude zero; shift it until it just does
    measured = [run(r.arm, r.seed, (r.val_loss or 0) + (0.001 if r.arm == "uniform-2" else 0)) for r in measured]
    text = " ".join(shown(analyse(arms(names), measured, endpoint(3)), 80).split())
    assert "uniform-2: the interval excludes zero, but not after the correction for several arms and looks." in text
