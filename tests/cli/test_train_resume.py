"""`prism train --resume`: accepted changes, the proof, and whether a recipe fits, from the command line."""

import json
from pathlib import Path

import pytest

from prism_transformer.cli import main
from prism_transformer.training.session import Session


def run(*argv: str) -> int:
    return main(["train", *argv])


@pytest.fixture
def stopped(tiny_yaml: str, in_empty_folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run stopped at step 4 of 10, that saves each second step for good."""

    def at_four(session: Session) -> None:
        if session.step == 4:
            session.stop(15)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "evaluate_on_the_way", at_four)
        assert run("--recipe", tiny_yaml, "--out", "broken", "--keep-every", "2") == 75
    capsys.readouterr()
    return "broken"


def test_a_longer_horizon_needs_its_flag_and_its_tokens(stopped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--resume", stopped, "--tokens", "768") == 2
    err = capsys.readouterr().err
    assert "leave out --tokens, or accept the change: --allow horizon for --tokens, --allow recipe for others" in err
    assert run("--resume", stopped, "--tokens", "768", "--allow", "recipe") == 2
    err = capsys.readouterr().err
    assert "training.tokens: 640 -> 768" in err and "to go on with it all the same, add --allow horizon" in err
    assert run("--resume", stopped, "--tokens", "768", "--allow", "horizon", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["step"] == 12
    assert "changed since, as asked: training.tokens: 640 -> 768" in err
    assert "tokens: 768" in Path(stopped, "recipe.yaml").read_text()


def test_other_settings_need_theirs(stopped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--resume", stopped, "--allow", "recipe", "--micro-batch", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["final"]
    with pytest.raises(SystemExit):  # tyro's own error, which names the kinds
        run("--resume", stopped, "--allow", "everything")
    assert "horizon" in capsys.readouterr().err
    assert run("--resume", stopped, "--recipe", "demo", "--allow", "recipe") == 2
    assert "leave out --recipe" in capsys.readouterr().err


def test_an_edited_recipe_is_one_sentence(stopped: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(stopped, "recipe.yaml")
    path.write_text(path.read_text().replace("micro_batch: 4", "micro_batch: 2"))
    assert run("--resume", stopped) == 2
    err = capsys.readouterr().err
    assert "step-000004 holds a run with other settings" in err
    assert "training.micro_batch: 4 -> 2" in err and "add --allow recipe" in err


def test_a_run_is_proved(stopped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--resume", stopped, "--verify") == 0
    out, err = capsys.readouterr()
    assert "training steps 3 to 4 again, twice" in err
    lines = out.splitlines()
    assert lines[0].startswith("the two repetitions: the same bit for bit (")
    assert lines[1].startswith("run and repetition: the same bit for bit (")
    assert all(len(line) <= 80 for line in lines)
    assert run("--resume", stopped, "--verify", "--json") == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["holds"] and (proof["first_step"], proof["last_step"]) == (2, 4)


def test_a_proof_that_fails_says_where_and_ends_with_3(
    stopped: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prism_transformer.training import session

    rate = session.set_learning_rate
    monkeypatch.setattr(session, "set_learning_rate", lambda optimizer, lr: rate(optimizer, 2 * lr))
    assert run("--resume", stopped, "--verify") == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the two repetitions: the same bit for bit (")
    assert lines[1].startswith("run and repetition: they differ (")
    assert any("tensors differ, first " in line for line in lines[2:])


def test_verify_needs_a_run(tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--recipe", tiny_yaml, "--out", "x", "--verify") == 2
    assert "--verify proves a run that is there: give it with --resume RUN" in capsys.readouterr().err


def test_a_dry_run_says_whether_it_fits_each_of_many_devices(
    in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", "large", "--dry-run", "--ranks", "8", "--device-memory", "80", "--tokenizer", "gpt2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "memory in training, about, on each of 8 devices (DDP), products in bfloat16:" in lines
    assert "it fits" in lines and all(len(line) <= 80 for line in lines[:10])
    arguments = ("--recipe", "large", "--dry-run", "--device-memory", "16", "--tokenizer", "gpt2", "--json")
    assert run(*arguments) == 0
    plan = json.loads(capsys.readouterr().out)["fit"]
    assert not plan["fits"] and plan["way"] == "one" and plan["remedy"].endswith(" it does")
    assert plan["memory"]["weights"] == pytest.approx(4 * 756.8e6, rel=1e-3)


@pytest.mark.parametrize("argv", [["--ranks", "8"], ["--device-memory", "80"]])
def test_what_only_a_dry_run_reads_is_refused_without_it(
    argv: list[str], tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml, "--out", "x", *argv) == 2
    assert "--ranks and --device-memory are for --dry-run; several processes are started by torchrun" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (in_empty_folder / "x").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--device-memory", "0"], "--device-memory above 0"),
        (["--ranks", "0"], "must be at least 1"),
        (["--device-memory", "-3"], "--device-memory above 0"),
        (["--ranks", "3"], "is no multiple of context x micro_batch x devices"),
    ],
)
def test_a_dry_run_for_devices_that_cannot_be(
    argv: list[str], message: str, tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--recipe", tiny_yaml, "--dry-run", *argv) == 2
    assert message in capsys.readouterr().err


def test_only_rank_0_tells_of_an_error(
    tiny_yaml: str, in_empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert run("--recipe", tiny_yaml, "--out", "x", "--lr", "-1") == 2
    assert capsys.readouterr() == ("", "")
