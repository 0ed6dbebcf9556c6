from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study.losses_csv import read_losses
from prism_transformer.study.results import analyse

HEADER = "arm,seed,step,tokens,loss\n"
GOOD = HEADER + "".join(
    f"{arm},{seed},{step},{step * 100},{loss + seed / 100 + (0.5 if step == 10 else 0)}\n"
    for arm, loss in (("uniform", 3.3748), ("prism", 3.3604))
    for seed in (0, 1, 2)
    for step in (10, 20)
)


def write(folder: Path, text: str) -> Path:
    path = folder / "losses.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_last_row_of_a_run_is_its_final_loss(tmp_path: Path) -> None:
    losses = read_losses(write(tmp_path, GOOD))
    results = analyse(losses.arms, losses.runs, losses.endpoint)
    assert results["arms"]["prism"]["val_loss"] == pytest.approx([3.3604, 3.3704, 3.3804])
    assert results["differences"]["prism"]["mean"] == pytest.approx(-0.0144)
    assert results["arms"]["uniform"]["sources"][0] == "losses.csv, line 3"
    assert [point["tokens"] for point in results["curves"]["uniform"]] == [1000, 2000]
    assert losses.notes == ["losses.csv: 2 arms, 3 seeds, final loss at 2,000 tokens."]


def test_other_delimiters_orders_and_spellings_are_read(tmp_path: Path) -> None:
    text = "\ufeffLoss; Arm ;tokens;step;seed;heads;host\n3.1;uniform;10;1;0;4x2;a\n3.2;wide;10;1;0;2x2;a\n"
    losses = read_losses(write(tmp_path, text))
    assert [(arm.name, arm.heads, arm.role) for arm in losses.arms] == [
        ("uniform", (4, 4), "baseline"),
        ("wide", (2, 2), "primary"),
    ]
    assert "Columns not used: host." in losses.notes


def test_what_is_not_used_is_said(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(("prism,0,", "prism,2,20,"))]
    losses = read_losses(write(tmp_path, "\n".join(lines) + "\nuniform,3,20,2000,nan\nprism,3,20,2000,3.4\n"))
    assert "Missing: prism has no seed 0; those pairs are left out." in losses.notes
    assert "Not used: prism seed 2 ends at 1,000 tokens (step 10) and not at 2,000." in losses.notes
    assert "Diverged: uniform seed 3, loss nan at step 20." in losses.notes
    entry = analyse(losses.arms, losses.runs, losses.endpoint)["differences"]["prism"]
    assert (entry["n"], entry["planned"]) == (1, 4)
    assert [run["status"] for run in entry["left_out"]] == ["missing", "missing", "diverged"]


def test_arms_that_end_elsewhere_are_refused(tmp_path: Path) -> None:
    longer = [line.replace(",20,2000,", ",40,4000,") if "prism" in line else line for line in GOOD.splitlines()]
    with pytest.raises(
        InputError, match=r"no run of 'prism' ends at the 2,000 tokens of the baseline 'uniform'.*4,000"
    ):
        read_losses(write(tmp_path, "\n".join(longer)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no column 'arm'"),
        (HEADER, "no rows below its header"),
        ("arm,seed,step,tokens,val_loss\n", "no column 'loss'; rename 'val_loss'?"),
        (HEADER + "uniform,0,1,10,x\n", "line 2: loss='x' is not a number"),
        (HEADER + "uniform,0.5,1,10,3\n", "line 2: seed='0.5' is not a whole number"),
        (HEADER + "uniform,0,nan,10,3\n", "line 2: step='nan' is not a whole number"),
        (HEADER + "uniform,0,1\n", "line 2: tokens='' is not a number"),
        (HEADER + ",0,1,10,3\n", "line 2: arm is empty"),
        (HEADER + "uniform,0,1,10,3\nuniform,0,1,10,4\n", "lines 2 and 3: arm 'uniform', seed 0 has step 1 twice"),
        (HEADER + "uniform,0,1,10,3\nuniform,0,2,10,4\n", "no more tokens at step 2"),
        (HEADER + "uniform,0,1,10,3\n", "has only the arm 'uniform'"),
        (HEADER + "a,0,1,10,3\nb,0,1,10,3\n", "no arm 'uniform'; name the baseline, one of a, b"),
        ("heads," + HEADER + "4,uniform,0,1,10,3\nwide,prism,0,1,10,3\n", "heads='wide' of arm 'prism' is no schedule"),
        ("lr," + HEADER + "-1,uniform,0,1,10,3\n", "lr='-1' is not a positive number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        read_losses(write(tmp_path, text))
    assert problem in str(error.value)


def test_all_problems_come_at_once_and_not_too_many(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_losses(write(tmp_path, HEADER + "uniform,0,1,10,x\n" * 13))
    assert len(error.value.problems) == 11 and error.value.problems[-1] == "and 3 more problems"


def test_unknown_roles_name_the_nearest_arm(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_losses(write(tmp_path, GOOD), baseline="unifrom", primary="prsm")
    assert [problem.split("; ")[1] for problem in error.value.problems] == [
        "did you mean 'uniform'?",
        "did you mean 'prism'?",
    ]


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_losses(tmp_path / "none.csv")
    (tmp_path / "losses.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as UTF-8"):
        read_losses(tmp_path / "losses.csv")


def test_a_seed_that_is_missing_at_several_rates_takes_only_its_own_pair_away(tmp_path: Path) -> None:
    rows = [
        f"{arm},{seed},1,10,{3 + lr * 100 + seed / 100 - (arm == 'prism') / 10},{lr}"
        for arm, seeds in (("uniform", range(5)), ("prism", range(4)))
        for seed in seeds
        for lr in (0.001, 0.002)
    ]
    losses = read_losses(write(tmp_path, "arm,seed,step,tokens,loss,lr\n" + "\n".join(rows)))
    entry = analyse(losses.arms, losses.runs, losses.endpoint)["differences"]["prism"]
    assert (entry["n"], entry["planned"]) == (4, 5)
    assert entry["mean"] == pytest.approx(-0.1)


def test_only_an_end_of_line_ends_a_row(tmp_path: Path) -> None:
    text = GOOD.replace("loss\n", "loss,note\n", 1).replace(
        "\nuniform,0,10", '\nuniform,0,5,500,5.0,"a\u2028b\x85c"\nuniform,0,10', 1
    )
    assert len(read_losses(write(tmp_path, text)).runs) == 6


def test_several_rates_are_several_runs(tmp_path: Path) -> None:
    rows = [
        f"{arm},{seed},1,10,{3 + lr * 100},{lr}"
        for arm in ("uniform", "prism")
        for seed in (0, 1)
        for lr in (0.001, 0.002)
    ]
    losses = read_losses(write(tmp_path, "arm,seed,step,tokens,loss,lr\n" + "\n".join(rows)))
    results = analyse(losses.arms, losses.runs, losses.endpoint)
    assert results["learning_rates"]["chosen"] == {"uniform": [0.001, 0.001], "prism": [0.001, 0.001]}
