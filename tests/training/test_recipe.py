"""Recipes: what is legal, what follows from the settings, and the files."""

import math
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.data import DataSettings
from prism_transformer.errors import InputError
from prism_transformer.model.head_schedule import ScheduleError
from prism_transformer.settings import from_mapping, to_yaml
from prism_transformer.training.recipe import (
    DeviceSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    TrainingSettings,
    with_model,
    with_training,
)

SMALL = Recipe(
    model=ModelSettings(layers=4, d_model=64, heads=4, context=64),
    training=TrainingSettings(tokens=2_050_000, tokens_per_step=2048, micro_batch=8),
)


def problems(recipe: Recipe, world_size: int = 1) -> list[str]:
    with pytest.raises(InputError) as caught:
        recipe.check(world_size)
    return list(caught.value.problems)


def with_optimizer(**changes: object) -> Recipe:
    return replace(SMALL, optimizer=replace(SMALL.optimizer, **changes))


def test_steps_and_accumulation_follow_from_tokens():
    """2,050,000 tokens are 1000 steps of 2048 and 2000 left; a step is 32 sequences of 64, 4 micro-batches of 8."""
    SMALL.check()
    assert (SMALL.batch_sequences, SMALL.steps, SMALL.trained_tokens) == (32, 1000, 2_048_000)
    assert [SMALL.accumulation(world_size) for world_size in (1, 2, 4)] == [4, 2, 1]


def test_tokens_per_step_that_do_not_divide_name_the_nearest_that_do():
    assert problems(with_training(SMALL, tokens_per_step=2000)) == [
        "tokens_per_step=2000 is no multiple of context x micro_batch x devices = 64 x 8 x 1 = 512; "
        "nearest that are: 1536 or 2048"
    ]


def test_a_micro_batch_that_does_not_divide_names_one_that_does():
    """2048 tokens are 32 sequences; 12 does not divide 32, the next below that does is 8."""
    assert problems(with_training(SMALL, micro_batch=12)) == [
        "tokens_per_step=2048 is no multiple of context x micro_batch x devices = 64 x 12 x 1 = 768; "
        "nearest that are: 1536 or 2304; or micro_batch=8"
    ]


def test_the_devices_count_too():
    assert "64 x 8 x 3 = 1536; nearest that are: 1536 or 3072" in problems(SMALL, world_size=3)[0]


def test_fewer_tokens_than_one_unit_have_only_a_legal_number_above():
    assert "nearest that are: 512;" in problems(with_training(SMALL, tokens_per_step=128))[0]


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4000))
def test_what_the_message_calls_legal_is_legal(context, micro_batch, world_size, tokens_per_step):
    recipe = with_model(with_training(SMALL, micro_batch=micro_batch, tokens_per_step=tokens_per_step), context=context)
    try:
        recipe.check(world_size)
    except InputError as error:
        (problem,) = error.problems
        text = problem.split("nearest that are: ")[1].split(";")[0]
        for legal in text.split(" or "):
            with_training(recipe, tokens_per_step=int(legal)).check(world_size)
        if "micro_batch=" in problem.split(";")[-1]:
            with_training(recipe, micro_batch=int(problem.rsplit("=", 1)[1])).check(world_size)
    else:
        whole_batch = recipe.accumulation(world_size) * micro_batch * world_size * context
        assert whole_batch == tokens_per_step


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (with_training(SMALL, micro_batch=0), "micro_batch=0 must be at least 1"),
        (with_training(SMALL, tokens_per_step=0), "tokens_per_step=0 must be at least 1"),
        (with_training(SMALL, tokens=2047), "tokens=2,047 is less than one step of 2,048 tokens"),
        (with_training(SMALL, evaluations=0), "evaluations=0 must be at least 1"),
        (with_training(SMALL, log_every=0), "log_every=0 must be at least 1"),
        (with_training(SMALL, keep=0), "keep=0 must be at least 1"),
        (with_training(SMALL, save_minutes=0), "save_minutes=0 must be a number above 0"),
        (with_training(SMALL, seed=-1), r"seed=-1 must lie in 0\.\.2\^63-1"),
        (with_training(SMALL, init_seed=2**64), "init_seed=18446744073709551616 must lie in"),
        (with_optimizer(lr=0.0), r"lr=0\.0 must be a number above 0"),
        (with_optimizer(lr=math.inf), "lr=inf must be a number above 0"),
        (with_optimizer(lr=math.nan), "lr=nan must be a number above 0"),
        (with_optimizer(warmup=1.5), r"warmup=1\.5 must lie in 0\.\.1"),
        (with_optimizer(beta2=1.0), r"beta2=1\.0 must be at least 0 and below 1"),
        (with_optimizer(weight_decay=-0.1), r"weight_decay=-0\.1 must not be negative"),
        (with_optimizer(clip=-1.0), r"clip=-1\.0 must not be negative"),
        (with_optimizer(lr_schedule="wsd", warmup=0.5, decay=0.6), "overlap; their sum must be at most 1"),
        (with_model(SMALL, context=0), "context=0 must be at least 1"),
        (with_model(SMALL, ffn=0), "ffn=0 must be at least 1"),
        (with_model(SMALL, init_std=0.0), r"init_std=0\.0 must be a number above 0"),
        (with_model(SMALL, schedule="pirsm"), "pirsm.*nearest: prism"),
        (with_model(SMALL, schedule="4x3"), "3 layers.* 4|4 layers.* 3"),
        (with_model(SMALL, schedule="sweep"), "schedule='sweep' is . schedules; name one"),
        (with_model(SMALL, heads=5), "5.*does not divide.*64"),
        (with_model(SMALL, schedule="64x4"), "head dim 1 of layer 0 is odd"),
        (replace(SMALL, device=DeviceSettings(threads=0)), "threads=0 must be at least 1"),
        (replace(SMALL, data=DataSettings(vocab_size=100)), "vocab_size=100 is outside 257"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_alone(recipe, message):
    with pytest.raises(InputError, match=message) as caught:
        recipe.check()
    assert len(caught.value.problems) == 1


def test_all_rooms_name_their_problems_at_once():
    recipe = Recipe(
        model=replace(SMALL.model, schedule="5x4"),
        data=DataSettings(validation_share=2.0),
        optimizer=OptimizerSettings(lr=-1.0),
        training=replace(SMALL.training, tokens_per_step=2000),
        device=DeviceSettings(threads=-2),
    )
    found = " ".join(problems(recipe))
    for part in ("5", "validation_share=2.0", "lr=-1.0", "tokens_per_step=2000", "threads=-2"):
        assert part in found


def test_values_at_the_edge_are_legal():
    with_optimizer(clip=0.0, weight_decay=0.0, warmup=0.0, min_lr_ratio=1.0, beta1=0.0).check()
    with_optimizer(lr_schedule="wsd", warmup=0.5, decay=0.5).check()
    with_training(SMALL, tokens=2048, seed=0).check()


def test_the_schedule_names_one_schedule():
    assert with_model(SMALL, schedule="uniform-2").model.head_schedule().heads == (2, 2, 2, 2)
    assert with_model(SMALL, schedule="1x1,2x1,4x2").model.head_schedule().heads == (1, 2, 4, 4)
    with pytest.raises((InputError, ScheduleError)):
        with_model(SMALL, schedule="sweep").model.head_schedule()
    with pytest.raises(InputError, match=r"^schedule 1x1,4x1: 2 head counts for 4 layers"):
        with_model(SMALL, schedule="1x1,4x1").model.head_schedule()


def test_rows_of_the_vocabulary_are_padded_to_a_multiple():
    """GPT-2's 50,257 ids in 50,304 rows, the multiple of 64 above (nanoGPT)."""
    assert ModelSettings(vocab_multiple=64).rows(50257) == 50304
    assert ModelSettings().rows(50257) == 50257
    config = with_model(SMALL, vocab_multiple=64).model.config(257, end_of_text=256)
    assert (config.vocab_size, config.true_vocab_size, config.eos_token_id) == (320, 257, 256)
    assert SMALL.model.config(257).true_vocab_size is None


def test_the_model_settings_reach_the_configuration():
    model = replace(
        SMALL.model, norm="layernorm", rope_theta=5e5, rope_width="base", attention_scale="base", init_std=0.01, ffn=99
    )
    config = replace(model, schedule="1x2,4x2", tied=False).config(300)
    assert config.head_schedule.heads == (1, 1, 4, 4)
    assert (config.norm_type, config.rope_width, config.attention_scale) == ("layernorm", "base", "base")
    assert config.rope_parameters["rope_theta"] == 5e5
    assert (config.initializer_range, config.intermediate_size, config.tie_word_embeddings) == (0.01, 99, False)
    assert (config.hidden_size, config.num_hidden_layers, config.max_position_embeddings) == (64, 4, 64)


def test_a_recipe_comes_back_from_its_yaml():
    recipe = replace(SMALL, optimizer=OptimizerSettings(lr=3e-4, eps=1e-12), data=DataSettings(paths=("a", "b")))
    assert from_mapping(Recipe, yaml.safe_load(to_yaml(recipe)), where="recipe") == recipe
