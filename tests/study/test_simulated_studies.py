"""Ten thousand made-up studies: what the intervals and decisions promise is what they keep.

The vectorised functions are the ones that judge a real study; `test_one_study_is_judged_like_the_thousands` holds the
two paths together.
"""

import numpy as np
import pytest

from prism_transformer.study.decisions import Pairs, judge
from prism_transformer.study.statistics import (
    Array,
    detectable_difference,
    holm,
    look_alpha,
    look_confidence,
    paired_t,
)

from . import fake_study

STUDIES = 20_000
CONFIDENCE = 0.95
FIRST, MOST = 3, 10
NOISE = 3 * np.sqrt(0.05 * 0.95 / STUDIES)
"""three standard errors of a simulated 5 %: .0046"""


def losses(rng: np.random.Generator, *, arms: int, seeds: int, spread: tuple[float, ...] | None = None) -> Array:
    """[STUDIES, arms, seeds]: what the arms share with a seed, and each arm's own noise; the baseline is arm 0."""
    shared = rng.normal(scale=0.004, size=(STUDIES, 1, seeds))
    own = np.array(spread or (0.003,) * arms)[None, :, None]
    return shared + rng.normal(size=(STUDIES, arms, seeds)) * own


def said_false(differences: Array, look: int) -> Array:
    """Whether the primary arm of each study is called lower or higher at this look."""
    return np.asarray(paired_t(differences, CONFIDENCE).p <= look_alpha(look, CONFIDENCE))


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("spread", [(0.003, 0.003), (0.001, 0.009)], ids=["equal spread", "unequal spread"])
def test_one_planned_look_covers_95_percent(seeds: int, spread: tuple[float, ...]) -> None:
    study = losses(np.random.default_rng(1), arms=2, seeds=seeds, spread=spread)
    interval = paired_t(study[:, 1] - study[:, 0], look_confidence(1, CONFIDENCE))
    assert 0.93 < np.mean((interval.low < 0) & (interval.high > 0)) < 0.97


def test_a_missing_run_only_widens() -> None:
    study = losses(np.random.default_rng(2), arms=2, seeds=5)
    lost = np.random.default_rng(3).integers(5, size=STUDIES)
    kept = np.arange(5) != lost[:, None]
    differences = (study[:, 1] - study[:, 0])[kept].reshape(STUDIES, 4)
    interval = paired_t(differences, CONFIDENCE)
    assert 0.93 < np.mean((interval.low < 0) & (interval.high > 0)) < 0.97
    assert said_false(differences, 1).mean() <= 0.05


@pytest.mark.parametrize("spread", [(0.003, 0.003), (0.001, 0.009)], ids=["equal spread", "unequal spread"])
def test_seeds_extended_one_by_one_say_a_false_word_in_5_percent_at_most(spread: tuple[float, ...]) -> None:
    study = losses(np.random.default_rng(4), arms=2, seeds=MOST, spread=spread)
    differences = study[:, 1] - study[:, 0]
    ever = np.zeros(STUDIES, dtype=bool)
    for look, seeds in enumerate(range(FIRST, MOST + 1), start=1):
        ever |= said_false(differences[:, :seeds], look)
        interval = paired_t(differences[:, :seeds], look_confidence(look, CONFIDENCE))
        covered = (interval.low < 0) & (interval.high > 0)
        assert covered.mean() >= (0.95 - NOISE if look == 1 else 0.95)
    # the study stops at its first word; where it stops, its interval covers the truth unless the word was false
    assert ever.mean() <= 0.05


def test_plain_intervals_at_every_look_would_not_keep_it() -> None:
    differences = np.random.default_rng(5).normal(size=(STUDIES, MOST))
    ever = np.zeros(STUDIES, dtype=bool)
    for seeds in range(FIRST, MOST + 1):
        ever |= paired_t(differences[:, :seeds], CONFIDENCE).p <= 0.05
    assert ever.mean() > 0.1


def test_one_long_extension_keeps_it_too() -> None:
    """3 seeds and then 60: the two looks share almost nothing, the hardest case for a bound over looks."""
    differences = np.random.default_rng(6).normal(size=(STUDIES, 60))
    ever = said_false(differences[:, :3], 1) | said_false(differences, 2)
    assert ever.mean() <= 0.05


def test_five_arms_say_a_false_word_in_5_percent_of_studies_at_most() -> None:
    """Each family: the verdict's one arm, and the three secondary arms together."""
    study = losses(np.random.default_rng(7), arms=5, seeds=5)
    p = paired_t(study[:, 1:] - study[:, :1], CONFIDENCE).p
    level = look_alpha(1, CONFIDENCE)
    assert (p[:, 0] <= level).mean() <= 0.05
    assert (holm(p[:, 1:]) <= level).any(axis=1).mean() <= 0.05
    assert (p[:, 1:] <= 0.05).any(axis=1).mean() > 0.09, "without the adjustment it would be more"


def test_false_equivalence_is_rare() -> None:
    """A true difference exactly at the margin is called equivalent in 2.5 % of studies at most."""
    margin = 0.004
    differences = margin + np.random.default_rng(8).normal(scale=0.002, size=(STUDIES, 5))
    interval = paired_t(differences, 1 - look_alpha(1, CONFIDENCE))
    assert np.mean((interval.low > -margin) & (interval.high < margin)) <= 0.025 + NOISE


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_power_is_as_planned(seeds: int) -> None:
    level = 1 - look_alpha(1, CONFIDENCE)
    effect = detectable_difference(0.01, seeds, confidence=level)
    differences = effect + np.random.default_rng(9).normal(scale=0.01, size=(STUDIES, seeds))
    assert said_false(differences, 1).mean() == pytest.approx(0.8, abs=0.012)


def test_prism_beats_any_uniform_needs_no_further_correction() -> None:
    """Worst case: far below all uniforms but one, to which it is equal."""
    study = losses(np.random.default_rng(10), arms=5, seeds=5)
    study[:, 1:4] += 1.0
    p = paired_t(study[:, 4:] - study[:, :4], CONFIDENCE)
    lower = (p.p <= look_alpha(1, CONFIDENCE)) & (p.mean < 0)
    assert lower[:, 1:].all() and lower.all(axis=1).mean() <= 0.025 + NOISE


def test_one_study_is_judged_like_the_thousands() -> None:
    study = losses(np.random.default_rng(11), arms=5, seeds=4)[:200]
    p = paired_t(study[:, 1:] - study[:, :1], CONFIDENCE).p
    level = look_alpha(2, CONFIDENCE)
    said = np.stack([p[:, 0] <= level, *(holm(p[:, 1:]) <= level).T], axis=1)
    endpoint = fake_study.endpoint(4, looks=(3,), equivalence=0.0)
    for losses_of_study, words in zip(3.9 + study, said, strict=True):
        pairs = {
            str(a): Pairs(dict(enumerate(losses_of_study[a])), dict(enumerate(losses_of_study[0]))) for a in range(1, 5)
        }
        judged = judge({"1": pairs.pop("1")}, endpoint) | judge(pairs, endpoint)
        assert [judged[str(a)]["decision"] in ("lower", "higher") for a in range(1, 5)] == words.tolist()
