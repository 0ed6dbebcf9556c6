"""The words: true to the decision, and never more than was found."""

from pathlib import Path

import pytest

from prism_transformer.study.report import render
from prism_transformer.study.results import analyse
from prism_transformer.study.verdict import equivalent_tokens_text

from .fake_study import arms, endpoint, run

TWO = ("uniform", "prism")


def verdict(differences: list[float], **changes: object) -> dict[str, object]:
    losses = [run("uniform", seed, 4.0) for seed in range(len(differences))]
    losses += [run("prism", seed, 4.0 + difference) for seed, difference in enumerate(differences)]
    result: dict[str, object] = analyse(arms(TWO), losses, endpoint(len(differences), **changes))["verdict"]
    return result


LOWER = "prism ends with a lower validation loss than uniform, by 1.00 %."
HIGHER = "prism ends with a higher validation loss than uniform, by 1.00 %."
EQUIVALENT = "prism and uniform are equivalent here: they differ by less than 0.1 % of the validation loss."
CANNOT_TELL = "These runs cannot tell whether prism is better or worse than uniform."
TOO_FEW = "There is no verdict on prism: a comparison with uniform needs at least 2 pairs of finished runs."


@pytest.mark.parametrize(
    ("differences", "decision", "headline"),
    [
        ([-0.039, -0.040, -0.041, -0.040], "lower", LOWER),
        ([0.039, 0.040, 0.041, 0.040], "higher", HIGHER),
        ([-0.001, 0.001, 0.0, 0.0], "equivalent", EQUIVALENT),
        ([-0.04, 0.04, 0.01, 0.0], "cannot_tell", CANNOT_TELL),
        ([-0.04], "cannot_tell", TOO_FEW),
    ],
)
def test_each_decision_has_its_sentence(differences: list[float], decision: str, headline: str) -> None:
    found = verdict(differences)
    assert (found["decision"], found["headline"]) == (decision, headline)
    assert str(found["text"]).startswith(headline)
    assert f"{len(differences)} of {len(differences)} planned pairs" in str(found["text"])


def test_cannot_tell_says_what_could_have_been_found() -> None:
    # sd .0330, 4 pairs, two-sided 4 %: t is 3.48 at 3 degrees of freedom; .8 power at 2.3 sd, 1.9 % of the loss
    found = verdict([-0.04, 0.04, 0.01, 0.0])
    assert "With 4 pairs of this spread, only a true difference of 1.90 % or more" in str(found["explanation"])


@pytest.mark.parametrize(("confidence", "chance", "within"), [(0.95, "5 %", "95 %"), (0.9, "10 %", "90 %")])
def test_chances_are_those_of_the_confidence(confidence: float, chance: str, within: str) -> None:
    # p between 4/5 of alpha and alpha: 4 pairs of mean 1 and sd s have t = 2 / s at 3 degrees of freedom, and the
    # middle of the two critical values, 3.18 and 3.48 at 5 %, 2.35 and 2.61 at 10 %, is at s = .6 and .81
    spread = {0.95: 0.6, 0.9: 0.81}[confidence] * 0.75**0.5
    differences = [0.04 * (1 + sign * spread) for sign in (-1, -1, 1, 1)]
    found = verdict(differences, confidence=confidence)
    assert found["decision"] == "cannot_tell"
    assert f"The interval just excludes zero, but part of the {chance} chance of a false word" in str(found["text"])

    names = ("uniform", "uniform, other initial seed")
    losses = [run(name, seed, 4.0 + k * (0.1 + seed / 1000)) for k, name in enumerate(names) for seed in range(4)]
    results = analyse(arms(names), losses, endpoint(4, primary=None, confidence=confidence))
    assert f"By chance that happens in {chance} of studies" in results["calibration"]["text"]
    assert f"as {within} of such arms do" in render(Path("nowhere"), results, {}).replace("\u00a0", " ")


@pytest.mark.parametrize(("effect", "coarse"), [(0.072, True), (0.08, False)])
def test_a_null_that_could_not_have_seen_the_known_effect_gets_no_tick(effect: float, coarse: bool) -> None:
    # the null's differences have sd .0330 and 4 pairs: 1.90 % of 4 nats would be noticed, so 1.80 % not and 2 % would
    losses = [run("uniform", seed, 4.0) for seed in range(4)]
    losses += [run("uniform, 20 % fewer tokens", seed, 4.0 + effect, tokens=1_638_400) for seed in range(4)]
    null = (-0.04, 0.04, 0.01, 0.0)
    losses += [run("uniform, other initial seed", seed, 4.0 + difference) for seed, difference in enumerate(null)]
    names = ("uniform", "uniform, 20 % fewer tokens", "uniform, other initial seed")
    results = analyse(arms(names), losses, endpoint(4, primary=None))
    found = results["calibration"]
    assert (found["null_inside"], found["null_coarse"]) == (True, coarse)
    sizes = "only 1.90 % or more would likely have been noticed, and fewer tokens came out at +1.80 %."
    assert (sizes in found["text"]) == coarse
    assert ("Nothing was found where nothing is" in found["text"]) != coarse
    page = render(Path("nowhere"), results, {})
    assert ("? too coarse to see nothing where nothing is" in page) == coarse
    assert ("✓ sees nothing where nothing is" in page) != coarse


def test_three_pairs_are_called_weak_and_four_are_not() -> None:
    assert "weak until more seeds agree" in str(verdict([-0.04, -0.041, -0.039])["text"])
    assert "weak" not in str(verdict([-0.04, -0.041, -0.039, -0.04])["text"])


def test_without_a_primary_arm_there_is_no_verdict() -> None:
    found = verdict([-0.04, -0.041, -0.039], primary=None)
    assert (found["arm"], found["decision"]) == (None, "cannot_tell")
    assert "prism: lower" in str(found["text"])


def tokens(factor: float, low: float | None = None, high: float | None = None, **changes: object) -> dict[str, object]:
    return {"factor": factor, "low": low, "high": high, "source": "calibration", "trusted": True} | changes


def test_tokens_in_words() -> None:
    text = equivalent_tokens_text(tokens(0.992, 0.971, 1.014), "uniform")
    assert text == "like training uniform on 0.8 % fewer tokens (between 2.9 % fewer and 1.4 % more)"
    assert (
        equivalent_tokens_text(tokens(1.05, source="curve"), "uniform")
        == "roughly like training uniform on 5.0 % more tokens"
    )
    assert (
        equivalent_tokens_text(tokens(3.0, trusted=False), "uniform")
        == "like training uniform on more than twice the tokens"
    )
    assert equivalent_tokens_text(tokens(1.1, 0.2, 6.0, trusted=False), "uniform") is None
    assert equivalent_tokens_text(None, "uniform") is None
