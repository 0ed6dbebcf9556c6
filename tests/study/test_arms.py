"""Arms: what the words of the command line mean, and every word that means nothing named at once."""

import pytest

from prism_transformer.errors import InputError
from prism_transformer.study.arms import Arm, is_arm_name, parse_arms
from prism_transformer.training.recipe import ModelSettings, Recipe, TrainingSettings

SMALL = ModelSettings(layers=12, d_model=768, heads=12)
PRISM = "3x2,6x2,8x2,12x6"


def parse(*texts: str, **options: object) -> dict[str, Arm]:
    return {arm.name: arm for arm in parse_arms(texts, SMALL, **options)}


def problems(*texts: str, **options: object) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        parse(*texts, **options)
    return caught.value.problems


def test_uniform_is_always_first_and_the_baseline() -> None:
    for texts in (["prism"], ["uniform", "prism"], ["prism", "uniform"]):
        arms = parse(*texts)
        assert list(arms) == ["uniform", "prism"]
        assert str(arms["uniform"].schedule) == "12x12" and arms["uniform"].role == "baseline"
        assert str(arms["prism"].schedule) == PRISM and arms["prism"].role == "primary"


def test_a_sweep_is_every_wider_uniform_beside_the_baseline() -> None:
    assert list(parse("uniform", "sweep", "prism")) == [
        *("uniform", "uniform-3", "uniform-4", "uniform-6", "uniform-8"),
        "prism",
    ]
    wide = parse("uniform", "sweep@rope_width=head")  # a setting at its usual value: the baseline comes in once too
    assert list(wide) == ["uniform", *(f"uniform-{n}@rope_width=head" for n in (3, 4, 6, 8))]


@pytest.mark.parametrize(
    ("texts", "named", "primary"),
    [
        (["reversed", "prism"], None, "prism"),
        (["reversed", "linear"], None, "reversed"),
        (["reversed", "prism"], "reversed", "reversed"),
        (["mine=3x6,12x6", "prism"], "mine", "mine"),
    ],
)
def test_one_arm_is_primary(texts: list[str], named: str | None, primary: str) -> None:
    roles = {name: arm.role for name, arm in parse(*texts, primary=named).items()}
    assert [name for name, role in roles.items() if role == "primary"] == [primary]
    assert list(roles.values()).count("baseline") == 1


def test_settings_follow_an_arm_and_are_part_of_its_identity() -> None:
    arms = parse("prism", "prism@rope_width=base", f"both={PRISM}@rope_width=base@attention_scale=base")
    assert arms["prism@rope_width=base"].settings == {"rope_width": "base"}
    assert arms["both"].settings == {"rope_width": "base", "attention_scale": "base"}
    model = arms["both"].recipe(Recipe(model=SMALL), seed=0, lr=1e-3).model
    assert (model.schedule, model.rope_width, model.attention_scale) == (PRISM, "base", "base")


@pytest.mark.parametrize(
    "twin",
    [PRISM, "3,3,6,6,8,8,12*6", f"mine={PRISM}", "prism@rope_width=head"],
)
def test_two_arms_of_the_same_heads_and_settings_are_refused(twin: str) -> None:
    assert "have the same heads (3x2,6x2,8x2,12x6) and the same settings" in problems("prism", twin)[0]


def test_settings_leave_a_uniform_arm_what_it_is() -> None:
    assert "'uniform' and 'same'" in problems("prism", "same=uniform@rope_width=base")[0]


@pytest.mark.parametrize(
    ("text", "schedules"),
    [
        ("uniform-3@rope_width=base", "3x12"),
        ("3x6,6x6@rope_width=base", "3x6,6x6"),
        ("mine=3x6,6x6@attention_scale=base", "3x6,6x6"),
    ],
)
def test_the_base_head_dim_needs_a_layer_of_base_heads(text: str, schedules: str) -> None:
    """The model knows its own schedule alone: the base would be 256 dims of 3 heads, or 128 of 6, not 64 of 12."""
    (found,) = problems(text)
    assert f"arm {text!r}: " in found and "means the base head dim, 64 of heads=12" in found
    assert f"it is not in {schedules}: leave the setting out" in found
    assert parse(text.replace("=base", "=head")), "what every model does without it"


@pytest.mark.parametrize("texts", [("prism", "prism"), ("a=linear", "a=reversed"), ("mine=linear", "Mine=reversed")])
def test_two_arms_of_one_name_are_refused(texts: tuple[str, str]) -> None:
    assert any("two arms are named" in problem for problem in problems(*texts))


def test_every_problem_is_named_at_once() -> None:
    found = problems("prsm", "3x11", "prism@rope_wdth=base", "prism@rope_width=bse", "prism", primary="prisn")
    assert [
        "unknown arm 'prsm'; nearest: prism" in found[0],
        "arm 3x11: 11 head counts for 12 layers" in found[1],
        "no setting 'rope_wdth'; did you mean 'rope_width'?" in found[2],
        "rope_width='bse'; choose one of: head, base" in found[3],
        "primary arm 'prisn' is not an arm besides the baseline; did you mean 'prism'?" in found[4],
    ] == [True] * 5
    assert len(found) == 5


@pytest.mark.parametrize("texts", [(), ("uniform",)])
def test_a_study_needs_a_second_arm(texts: tuple[str, ...]) -> None:
    assert "needs an arm besides uniform" in problems(*texts)[0]
    assert len(parse(*texts, calibrate=True)) == 3  # the ruler alone can be calibrated


def test_calibration_adds_an_effect_that_must_be_found_and_one_that_must_not() -> None:
    recipe = Recipe(model=SMALL, training=TrainingSettings(tokens=1000, tokens_per_step=10, seed=0, init_seed=None))
    arms = parse("prism", calibrate=True)
    assert list(arms) == ["uniform", "prism", "fewer-tokens", "other-seed"]

    fewer, other, uniform = (
        arms[name].recipe(recipe, seed=3, lr=2e-3) for name in ("fewer-tokens", "other-seed", "uniform")
    )
    assert fewer.training.tokens == 800 and fewer.training.init_seed is None
    assert other.training.tokens == 1000
    assert other.training.seed == uniform.training.seed == 3, "the same data in the same order"
    assert other.training.init_seed not in (None, *range(1000)), "weights that no seed of the study begins with"
    assert uniform.optimizer.lr == 2e-3
    assert {run.model.schedule for run in (fewer, other, uniform)} == {"12x12"}
    assert problems("fewer-tokens=prism", calibrate=True)[0].startswith("arm name 'fewer-tokens' belongs to")


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "a b", "a\\b", "x" * 101, "a:b", "-a"])
def test_a_name_that_is_unsafe_as_a_folder_is_refused(name: str) -> None:
    assert not is_arm_name(name)
    assert problems(f"{name}={PRISM}")


def test_a_long_schedule_needs_a_name_since_its_text_is_no_folder() -> None:
    deep = ModelSettings(layers=96, d_model=12288, heads=96)
    text = ",".join(f"{h}x1" for h in [48, 96] * 48)
    with pytest.raises(InputError, match="has 479 characters, 100 at most: NAME=TEXT"):
        parse_arms([text], deep)
    assert parse_arms([f"teeth={text}"], deep)[1].schedule.heads == (48, 96) * 48


def test_every_name_that_parsing_gives_is_a_safe_one() -> None:
    texts = [
        "sweep",
        "prism",
        "reversed",
        "shuffled-7",
        "linear",
        "3x6,12x6",
        "prism@rope_width=base",
        "a.b-c_D=6x6,12x6",
    ]
    arms = parse_arms(texts, SMALL, calibrate=True)
    assert all(is_arm_name(arm.name) for arm in arms)
