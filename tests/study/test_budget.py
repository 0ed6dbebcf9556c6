"""What fits a budget, with a machine of known speed."""

from dataclasses import replace

import pytest

from prism_transformer.data import DataSettings
from prism_transformer.errors import InputError
from prism_transformer.study.arms import parse_arms
from prism_transformer.study.budget import Candidate, bytes_per_token, fit_budget, largest_that_fits, text_tokens
from prism_transformer.study.estimate import START_SECONDS, Speed, estimate
from prism_transformer.study.plan import StudySettings
from prism_transformer.training.recipe import ModelSettings, Recipe, TrainingSettings

MODEL = ModelSettings(layers=2, d_model=16, heads=4, context=16)
# A run takes 960 s at 100 tokens/s; evaluation is made to cost nothing.
TRAINING = TrainingSettings(tokens=96_000, tokens_per_step=96, micro_batch=2, evaluations=1, evaluation_tokens=1)
RECIPE = Recipe(model=MODEL, training=TRAINING)
SETTINGS = StudySettings(budget="?")
RUN = 960.0  # seconds of one run


def at_100_tokens_a_second(recipe, settings):
    arms = parse_arms(settings.arms, recipe.model)
    return estimate(
        recipe, arms, settings, vocab_size=50, text={"validation": 0}, jobs=1, speed=Speed(100.0, "measured here")
    )


def fit(budget, fixed=(), settings=SETTINGS):
    return fit_budget(RECIPE, settings, START_SECONDS + budget, at_100_tokens_a_second, fixed=fixed)


@pytest.mark.parametrize(("runs", "seeds"), [(6, 3), (7.9, 3), (8, 4), (11, 5), (100, 10)])
def test_seeds_are_added_at_full_tokens(runs, seeds):
    recipe, settings = fit(runs * RUN + 1)
    assert (recipe.trained_tokens, settings.seeds) == (96_000, seeds)


def test_tokens_shrink_where_three_seeds_do_not_fit():
    recipe, settings = fit(6 * RUN / 2)
    assert settings.seeds == 3
    assert recipe.trained_tokens == 48_000


def test_a_quarter_of_the_tokens_is_the_least_and_the_error_says_what_a_run_costs():
    assert fit(6 * RUN / 4 + 1)[0].trained_tokens == 24_000
    with pytest.raises(InputError, match=r"one run of this recipe takes about 16 min.* 3 seeds about 96 min"):
        fit(6 * RUN / 4 - 10)


def test_what_the_user_chose_stays():
    recipe, settings = fit(100 * RUN, fixed=["seeds"], settings=replace(SETTINGS, seeds=4))
    assert (settings.seeds, recipe.trained_tokens) == (4, 96_000)
    recipe, settings = fit(4 * RUN, fixed=["seeds"], settings=replace(SETTINGS, seeds=4))
    assert (settings.seeds, recipe.trained_tokens) == (4, 48_000)
    with pytest.raises(InputError, match="too small"):
        fit(5 * RUN, fixed=["tokens"])


def text_file(tmp_path, size):
    path = tmp_path / f"{size}.txt"
    path.write_text("word " * (size // 5))
    return DataSettings(paths=(str(path),), tokenizer="bytes", validation_share=0.1, test_share=0.1)


def test_tokens_of_a_text_from_its_size(tmp_path):
    data = text_file(tmp_path, 10_000)
    assert text_tokens(data, 257) == {"train": 8000, "validation": 1000, "test": 1000}
    capped = replace(data, held_out_bytes=500)
    assert text_tokens(capped, 257) == {"train": 9000, "validation": 500, "test": 500}
    assert text_tokens(replace(data, paths=("-",)), 257) == {}
    with pytest.raises(InputError, match="nowhere"):
        text_tokens(replace(data, paths=(str(tmp_path / "nowhere"),)), 257)


def test_bytes_per_token_at_the_measured_vocabularies():
    assert [round(bytes_per_token(size), 1) for size in (257, 1024, 50257)] == [1.0, 2.4, 4.4]


def candidates(tmp_path, text_bytes):
    data = text_file(tmp_path, text_bytes)
    big = Recipe(model=replace(MODEL, layers=8), data=data, training=replace(TRAINING, tokens=960_000))
    small = Recipe(model=MODEL, data=data, training=TRAINING)
    return [Candidate("big", big, SETTINGS, 257), Candidate("small", small, SETTINGS, 257)]


@pytest.mark.parametrize(
    ("budget", "text_bytes", "chosen"),
    [
        (60 * RUN + 60, 1_000_000, "big"),
        (60 * RUN - 60, 1_000_000, "small"),
        (60 * RUN + 60, 250_000, "small"),  # 960,000 tokens of 200,000 are 4.8 epochs
        (5 * RUN, 1_000_000, None),
        (60 * RUN + 60, 20_000, None),
    ],
)
def test_the_largest_recipe_within_budget_and_four_epochs(tmp_path, budget, text_bytes, chosen):
    found = largest_that_fits(
        candidates(tmp_path, text_bytes), budget, lambda candidate: at_100_tokens_a_second, peak=1e15
    )
    assert (found.label if found else None) == chosen


def test_what_cannot_fit_at_the_peak_of_the_machine_is_not_measured(tmp_path):
    measured = []

    def of(candidate):
        measured.append(candidate.label)
        return at_100_tokens_a_second

    # FLOPs of a study of `big` are above 6 x 960,000 x 6 x parameters; a peak of 1,000 FLOP/s would take years
    assert largest_that_fits(candidates(tmp_path, 1_000_000), 60 * RUN, of, peak=1e3) is None
    assert measured == []
