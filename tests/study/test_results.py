"""The content of results.json, from runs whose answer is known by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study.measured import ArmInfo, Evaluation, RunResult
from prism_transformer.study.results import analyse, read_results, write_results

from .fake_study import arms, endpoint, run, runs

TWO = ("uniform", "prism")
UNIFORM = [3.3748, 3.3721, 3.3775]
PRISM = [3.3604, 3.3598, 3.3610]


def two_arms(uniform: list[float], prism: list[float], **changes: object) -> list[RunResult]:
    losses = {"uniform": uniform, "prism": prism}
    return [run(arm, seed, loss, **changes) for arm, of_arm in losses.items() for seed, loss in enumerate(of_arm)]


def test_the_public_keys_hold_what_they_promise() -> None:
    results = analyse(arms(TWO), two_arms(UNIFORM, PRISM), endpoint(3))
    assert results["seeds"] == [0, 1, 2] and results["baseline"] == "uniform"
    arm = results["arms"]["prism"]
    assert arm["heads"] == [1, 2, 4, 4] and arm["val_loss"] == PRISM
    assert arm["mean"] == pytest.approx(3.3604)
    assert arm["sd"] == pytest.approx(math.sqrt((0.0006**2 + 0.0006**2) / 2))
    # differences -.0144 -.0123 -.0165: mean -.0144, sd .0021, half width 4.302653 x .0021 / sqrt(3)
    entry = results["differences"]["prism"]
    half = 4.302653 * 0.0021 / math.sqrt(3)
    assert [entry["low"], entry["mean"], entry["high"]] == pytest.approx(
        [-0.0144 - half, -0.0144, -0.0144 + half], rel=1e-6
    )
    assert (entry["n"], entry["planned"], entry["confidence"], entry["decision"]) == (3, 3, 0.95, "lower")
    assert results["verdict"]["arm"] == "prism" and results["verdict"]["decision"] == "lower"
    assert list(results["differences"]) == ["prism"]


@pytest.mark.parametrize("status", ["diverged", "missing", "pending"])
def test_a_run_that_is_not_there_is_named_and_its_pair_left_out(status: str) -> None:
    measured = two_arms(UNIFORM, PRISM)
    measured[4] = run("prism", 1, None, status=status)
    results = analyse(arms(TWO), measured, endpoint(3))
    entry = results["differences"]["prism"]
    assert results["arms"]["prism"]["val_loss"] == [PRISM[0], None, PRISM[2]]
    assert (entry["n"], entry["planned"]) == (2, 3)
    assert entry["left_out"] == [{"seed": 1, "arm": "prism", "status": status}]
    assert entry["mean"] == pytest.approx((-0.0144 - 0.0165) / 2)
    word = {"diverged": "diverged", "missing": "missing", "pending": "still to come"}[status]
    assert f"2 of 3 planned pairs of runs were used; {word}: prism seed 1." in results["verdict"]["text"]


def test_an_unfinished_study_has_an_interval_and_no_verdict() -> None:
    """Deciding whenever it suits would make false words; the planned runs come first."""
    measured = two_arms(UNIFORM, PRISM) + [run(arm, 3, None, status="pending") for arm in TWO]
    entry = analyse(arms(TWO), measured, endpoint(4))["differences"]["prism"]
    assert entry["high"] < 0 and entry["decision"] == "cannot_tell" and "still to come" in entry["reason"]


def test_a_loss_that_is_not_finite_counts_as_diverged() -> None:
    results = analyse(arms(TWO), two_arms(UNIFORM, [*PRISM[:2], math.nan]), endpoint(3))
    assert results["arms"]["prism"]["status"] == ["done", "done", "diverged"]
    json.dumps(results, allow_nan=False)


def test_one_pair_has_no_interval() -> None:
    entry = analyse(arms(TWO), two_arms(UNIFORM[:1], PRISM[:1]), endpoint(1))["differences"]["prism"]
    assert (entry["low"], entry["high"], entry["decision"]) == (None, None, "cannot_tell")
    assert entry["mean"] == pytest.approx(-0.0144)


def test_equivalence_comes_first() -> None:
    """The difference is surely there, and surely smaller than the .1 % that was declared to matter."""
    results = analyse(arms(TWO), two_arms([3.0, 3.1, 3.2], [2.9990, 3.0991, 3.1989]), endpoint(3))
    entry = results["differences"]["prism"]
    assert entry["high"] < 0 and entry["decision"] == "equivalent"
    assert "smaller than what was declared to matter" in results["verdict"]["text"]
    tighter = analyse(arms(TWO), two_arms([3.0, 3.1, 3.2], [2.9990, 3.0991, 3.1989]), endpoint(3, equivalence=0.0))
    assert tighter["verdict"]["decision"] == "lower"


def test_a_later_look_is_counted_and_corrected() -> None:
    first = analyse(arms(TWO), two_arms(UNIFORM, PRISM), endpoint(3, looks=(3,)))
    second = analyse(arms(TWO), two_arms(UNIFORM, PRISM), endpoint(3, looks=(2, 3)))
    assert first["endpoint"]["look"] == 1 and second["endpoint"]["look"] == 2
    entry = second["differences"]["prism"]
    # 99.5 %: the table's t of 2 degrees of freedom is 14.089
    assert entry["confidence"] == pytest.approx(0.995)
    assert entry["mean"] - entry["low"] == pytest.approx(14.089 * 0.0021 / math.sqrt(3), rel=1e-4)
    assert "look 2" in second["verdict"]["text"]
    assert analyse(arms(TWO), two_arms(UNIFORM, PRISM), endpoint(3, looks=(2,)))["endpoint"]["look"] == 2


def test_the_first_look_keeps_a_part_of_alpha() -> None:
    """Differences 1, 2, 3 minus a shift: p = .045 is below 5 % and above the 4 % that the first look may spend."""
    shift = 2 - 4.55 / math.sqrt(3)  # t = 4.55 at 2 degrees of freedom: p = .0451
    prism = [loss - 0.01 * (k - shift) for k, loss in enumerate([3.3, 3.3, 3.3], start=1)]
    results = analyse(arms(TWO), two_arms([3.3, 3.3, 3.3], prism), endpoint(3, equivalence=0.0))
    entry = results["differences"]["prism"]
    assert 0.045 < entry["p"] < 0.0455 and entry["high"] < 0
    assert entry["decision"] == "cannot_tell" and entry["p_adjusted"] == pytest.approx(entry["p"] * 5 / 4)
    assert "just excludes zero" in results["verdict"]["text"]


def test_secondary_arms_are_adjusted_and_the_primary_is_not() -> None:
    results = analyse(arms(), runs(5), endpoint(5))
    differences = results["differences"]
    assert differences["prism"]["p_adjusted"] == pytest.approx(differences["prism"]["p"] * 5 / 4)
    family = sorted(
        (differences[name] for name in ("uniform-2", "uniform-1", "reversed")), key=lambda entry: entry["p"]
    )
    assert family[0]["p_adjusted"] == pytest.approx(min(1, 3 * family[0]["p"] * 5 / 4))
    assert family[0]["adjusted"]["confidence"] == pytest.approx(1 - 0.04 / 3)
    assert differences["uniform, other initial seed"]["p_adjusted"] == differences["uniform, other initial seed"]["p"]


def test_calibration_finds_what_is_there_and_only_that() -> None:
    good = analyse(arms(), runs(5), endpoint(5))["calibration"]
    assert good["found"] is True and good["null_inside"] is True
    blind = runs(5, effects={"uniform, 20 % fewer tokens": -0.1, "uniform, other initial seed": 0.05})
    bad = analyse(arms(), blind, endpoint(5))["calibration"]
    assert bad["found"] is False and bad["null_inside"] is False and "NOT found" in bad["text"]
    assert analyse(arms(TWO), runs(3, names=TWO), endpoint(3))["calibration"] is None
    unfinished = analyse(arms(), runs(1), endpoint(1))["calibration"]
    assert unfinished["found"] is None and unfinished["null_inside"] is None


def test_beating_any_uniform_needs_every_uniform() -> None:
    names = ("uniform", "prism", "uniform-2", "uniform-1")
    every = analyse(arms(names), runs(5, {"prism": -0.05}, names), endpoint(5))
    assert every["uniforms"]["lower_than_all"] is True and set(every["uniforms"]["against"]) == set(names) - {"prism"}
    one_short = analyse(arms(names), runs(5, {"prism": -0.05, "uniform-2": -0.05}, names), endpoint(5))
    assert one_short["verdict"]["decision"] == "lower" and one_short["uniforms"]["lower_than_all"] is False
    assert "not shown to be lower than uniform-2" in one_short["verdict"]["text"]
    assert analyse(arms(TWO), runs(3, names=TWO), endpoint(3))["uniforms"] is None


def test_the_primary_arm_is_set_beside_every_other_order_and_setting() -> None:
    """By hand: prism - reversed is -.10, -.15 and -.05, mean -.10 and sd .05; prism - tilted is -.05, -.04 and -.06."""
    tilted = ArmInfo(name="tilted", heads=(1, 2, 4, 4), role="secondary", settings={"rope_width": "base"})
    losses = {
        "uniform": (3.2, 3.3, 3.4),
        "uniform-2": (3.2, 3.3, 3.4),
        "prism": (3.0, 3.1, 3.3),
        "reversed": (3.1, 3.25, 3.35),
        "tilted": (3.05, 3.14, 3.36),
    }
    measured = [run(name, seed, loss) for name, of_arm in losses.items() for seed, loss in enumerate(of_arm)]
    everything = analyse([*arms(["uniform", "uniform-2", "prism", "reversed"]), tilted], measured, endpoint(3))
    others = everything["others"]
    assert list(others) == ["reversed", "tilted"]
    assert list(others["reversed"]["per_seed"].values()) == pytest.approx([-0.10, -0.15, -0.05])
    assert (others["reversed"]["mean"], others["reversed"]["sd"]) == pytest.approx((-0.10, 0.05))
    # t = -.05/(.01/sqrt 3) = -8.66, p = .0131 on 2 degrees of freedom; of two arms the smaller p counts twice
    assert others["tilted"]["p"] == pytest.approx(0.01307, abs=1e-5)
    assert others["tilted"]["decision"] == "lower" and others["reversed"]["decision"] == "cannot_tell"
    assert analyse(arms(TWO), runs(3, names=TWO), endpoint(3))["others"] == {}


def test_the_direction_is_that_of_the_interval_where_a_rate_fails_on_one_seed() -> None:
    """Prism is .01 lower at the first rate on every seed; at the second .02, but far behind on seed 4.

    Leaving seed 4 out, the second rate is the better one, and so the loss that is chosen for it is the bad one: the
    mean of the chosen losses is higher than uniform's. Best against best is the first rate's, 2.99 against 3.
    """
    noise = (0.0005, -0.0005, 0.0, 0.0005, -0.0005)
    measured = []
    for seed, e in enumerate(noise):
        measured += [run("uniform", seed, 3.0 + e, lr=lr) for lr in (1e-3, 2e-3)]
        measured.append(run("prism", seed, 2.99 - e, lr=1e-3))
        measured.append(run("prism", seed, 3.2 if seed == 4 else 2.98 + e, lr=2e-3))
    entry = analyse(arms(TWO), measured, endpoint(5))["differences"]["prism"]
    assert sum(entry["per_seed"].values()) > 0
    assert entry["decision"] == "lower"
    assert entry["low"] <= entry["mean"] <= entry["high"] < 0
    assert entry["mean"] == pytest.approx(-0.01, abs=1e-3)


@pytest.mark.parametrize(("loser", "decision"), [("prism", "cannot_tell"), ("uniform", "lower")])
def test_an_arm_that_diverged_alone_is_not_called_better_for_the_rest(loser: str, decision: str) -> None:
    measured = two_arms([3.37, 3.371, 3.369, 3.372, 3.37], [3.35, 3.351, 3.349, 3.352, 3.351])
    lost = [
        replace(each, status="diverged", val_loss=None) if (each.arm, each.seed) == (loser, 3) else each
        for each in measured
    ]
    results = analyse(arms(TWO), lost, endpoint(5))
    entry = results["differences"]["prism"]
    assert (entry["n"], entry["decision"]) == (4, decision)
    if loser == "prism":
        assert entry["reason"] == "prism diverged with seed 3, and the pairs that are left would hide that"
        text = results["verdict"]["text"]
        assert text.startswith("prism is not judged against uniform: prism diverged with seed 3")
        assert "likely to be found" not in text


def test_a_wider_uniform_that_is_better_is_called_so() -> None:
    """It is not the same as one that may do as well."""
    losses = {"uniform": 3.40, "prism": 3.38, "uniform-2": 3.36, "uniform-1": 3.38}
    noise = {"uniform": (0, 1, 2, 3), "prism": (1, 1, 2, 2), "uniform-2": (0, 1, 3, 2), "uniform-1": (1, 1.1, 2, 1.9)}
    measured = [run(arm, s, loss + noise[arm][s] / 1e4) for arm, loss in losses.items() for s in range(4)]
    text = analyse(arms(tuple(losses)), measured, endpoint(4))["verdict"]["text"]
    assert "Lower still: uniform-2, so wider uniform heads do better here." in text
    assert "Equivalent: uniform-1, so wider uniform heads do as much." in text


def test_a_uniform_arm_with_settings_is_no_uniform_to_beat() -> None:
    changed = ArmInfo(name="wide", heads=(2, 2, 2, 2), role="secondary", settings={"rope_width": "base"})
    measured = runs(3, names=TWO) + [run("wide", seed, 3.9) for seed in range(3)]
    assert analyse([*arms(TWO), changed], measured, endpoint(3))["uniforms"] is None


def test_what_cannot_be_compared_is_refused_with_every_reason() -> None:
    measured = [
        *two_arms(UNIFORM, PRISM),
        run("prism", 0, 3.3),
        run("prsim", 0, 3.3),
        run("prism", 4, 3.3, tokens=1000),
    ]
    with pytest.raises(InputError) as error:
        analyse(arms(TWO), measured, endpoint(3, primary="prizm", confidence=2.0))
    text = str(error.value)
    assert len(error.value.problems) == 5
    assert "primary 'prizm' is not an arm; did you mean 'prism'?" in text
    assert "runs of 'prsim', which is not an arm; did you mean 'prism'?" in text
    assert "arm 'prism', seed 0 has 2 runs" in text
    assert "seed 4 was trained on 1,000 tokens and the baseline on 2,048,000" in text
    assert "confidence=2.0" in text


def test_curves_are_paired_at_each_step() -> None:
    curve = {"uniform": (4.0, 3.5), "prism": (4.1, 3.4)}
    measured = [
        run(
            arm,
            seed,
            losses[-1] + seed,
            curve=tuple(
                Evaluation(step, step * 10, 1.0, loss + seed) for step, loss in zip((5, 10), losses, strict=True)
            ),
        )
        for arm, losses in curve.items()
        for seed in range(2)
    ]
    results = analyse(arms(TWO), measured, endpoint(2))
    points = results["difference_curves"]["prism"]
    assert [point["mean"] for point in points] == pytest.approx([0.1, -0.1])
    assert [point["tokens"] for point in points] == [50, 100]
    assert results["curves"]["uniform"][0] == {
        "step": 5,
        "tokens": 50,
        "is_whole": True,
        "mean": 4.5,
        "sd": pytest.approx(math.sqrt(0.5)),
        "n": 2,
    }


def test_a_last_loss_on_more_text_is_no_point_of_the_curve() -> None:
    """On the way the loss is 8 - ln(tokens) on a sample; the whole split at the end is .5 harder."""
    measured = []
    for arm, gain in (("uniform", 0.0), ("prism", 0.1)):
        for seed in range(3):
            way = [
                Evaluation(k, 1000 * k, float(k), 8 - math.log(1000 * k) - gain + seed / 100, is_whole=False)
                for k in range(1, 9)
            ]
            end = Evaluation(9, 9000, 9.0, 8.5 - math.log(9000) - gain + seed / 100)
            measured.append(run(arm, seed, end.val_loss, curve=(*way, end), tokens=9000))
    results = analyse(arms(TWO), measured, endpoint(3))
    tokens = results["differences"]["prism"]["equivalent_tokens"]
    assert tokens["factor"] == pytest.approx(math.exp(0.1))  # .1 nats at a slope of -1 against ln(tokens)
    last = results["dynamics"][-1]
    by_hand = [math.exp(8 - last["level"] + seed / 100) for seed in range(3)]
    assert last["arms"]["uniform"]["tokens"] == pytest.approx(sum(by_hand) / 3)
    assert [point["is_whole"] for point in results["curves"]["prism"]] == [False] * 8 + [True]


def test_results_are_written_whole_and_read_back(tmp_path: Path) -> None:
    results = analyse(arms(), runs(3), endpoint(3))
    write_results(tmp_path, results)
    assert read_results(tmp_path) == results
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_unreadable_results_are_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results\.json"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        read_results(tmp_path)
