"""The figures of a plan, by hand."""

from types import MappingProxyType

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study.arms import parse_arms
from prism_transformer.study.estimate import (
    EVALUATION_COST,
    START_SECONDS,
    Speed,
    duration,
    estimate,
    parse_duration,
    text_sentences,
    time_sentence,
)
from prism_transformer.study.plan import StudySettings
from prism_transformer.training.recipe import ModelSettings, Recipe, TrainingSettings, with_training
from prism_transformer.training.saving import checkpoint_bytes

MODEL = ModelSettings(layers=2, d_model=16, heads=4, context=16)
TRAINING = TrainingSettings(tokens=3200, tokens_per_step=32, micro_batch=2, evaluations=5, evaluation_tokens=100)
RECIPE = Recipe(model=MODEL, training=TRAINING)


def make(settings=None, *, jobs=1, speed=100.0, text=MappingProxyType({"train": 1600, "validation": 400})):
    settings = settings or StudySettings(seeds=3, calibrate=True)
    arms = parse_arms(settings.arms, MODEL, calibrate=settings.calibrate)
    found = Speed(speed, "measured here") if speed else None
    return estimate(RECIPE, arms, settings, vocab_size=50, text=text, jobs=jobs, speed=found)


def test_runs_and_tokens():
    found = make()
    assert (found.arms, found.runs) == (4, 12)
    assert found.tokens == 3 * (3 * 3200 + 2560)  # the fewer-tokens arm: 80 % of 100 steps of 32
    assert found.evaluated_tokens == 12 * (4 * 100 + 400)


def test_how_often_the_text_is_read():
    assert text_sentences(make()) == ["text: a run reads it about 2.0 times"]  # 3200 tokens a run, of 1600
    assert text_sentences(make(text={"train": 32, "validation": 40})) == [
        "text: a run reads it about 100.0 times",
        "warning: beyond 4 epochs a repeated text teaches less than a new one",
    ]
    assert text_sentences(make(text={})) == []


def test_parameters_and_disk():
    parameters = 50 * 16 + 16 + 2 * (4 * 16 * 16 + 3 * 16 * 42 + 2 * 16)  # embedding, last norm; two layers
    found = make()
    assert found.parameters == parameters
    rest = 2**17  # configuration, code and state, at the most
    assert found.disk_bytes == 12 * 3 * (4 * (3 * parameters + 16 * 50) + rest)


def test_a_later_look_finds_less():
    """At half a per cent the critical t of 4 degrees of freedom is 5.60, where it is 2.999 at the first look's 4 %."""
    settings = StudySettings(seeds=5, expected_sd=0.01)
    arms = parse_arms(settings.arms, MODEL)
    found = [
        estimate(RECIPE, arms, settings, vocab_size=50, text={}, jobs=1, speed=None, look=look).detectable
        for look in (1, 2)
    ]
    assert 1.5 < found[1] / found[0] < 5.60 / 2.999


def test_checkpoints_that_are_kept_for_good_take_disk_too():
    every = with_training(RECIPE, keep_every=25)  # of 100 steps: 4
    arms = parse_arms(("uniform", "prism"), MODEL)
    found = estimate(every, arms, StudySettings(seeds=1), vocab_size=50, text={}, jobs=1, speed=None)
    one = checkpoint_bytes(RECIPE, 50)
    assert found.disk_bytes == 2 * (2 + 1 + 4) * one


@pytest.mark.parametrize(("jobs", "share_of_the_busiest"), [(1, 1), (2, 1 / 2), (5, 3 / 12), (50, 1 / 12)])
def test_time_is_that_of_the_busiest_process(jobs, share_of_the_busiest):
    found = make(jobs=jobs, speed=100.0)
    work = (found.tokens + EVALUATION_COST * found.evaluated_tokens) / 100.0
    assert found.seconds == pytest.approx(START_SECONDS + work * share_of_the_busiest)


def test_what_it_can_find():
    assert make().detectable is None
    # 5 pairs of spread 1: the noncentral t with 4 degrees of freedom reaches power .8 at 1.68 (alpha .05), here .04
    found = make(StudySettings(seeds=5, expected_sd=0.01))
    assert 0.0168 < found.detectable < 0.0185
    assert make(StudySettings(seeds=1, expected_sd=0.01)).detectable is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("30min", 1800), ("1h30m", 5400), ("1.5 h", 5400), ("90s", 90), ("1 d", 86400)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2", "2 weeks and", "h", "-2h", "2h!", "0h"])
def test_what_is_no_time(text):
    with pytest.raises(InputError, match="budget"):
        parse_duration(text)


def test_durations_in_words():
    seconds = (40, 400, 3900, 8000, 3 * 86400, 12 * 365 * 86400)
    assert [duration(s) for s in seconds] == ["40 s", "7 min", "65 min", "2 h 13 min", "3 days", "12 years"]


def test_a_rate_that_no_training_reaches_is_called_that():
    assert time_sentence(make(speed=None)) is None
    measured = make().at(Speed(16_200.0, "by the first steps"))
    assert time_sentence(measured).endswith("at 16,200 tokens/s a process, by the first steps")
    bound = make().at(Speed(10.0, "from the matrix products alone"))
    assert time_sentence(bound).startswith("time: more than")
    assert time_sentence(bound).endswith("from the matrix products alone")
