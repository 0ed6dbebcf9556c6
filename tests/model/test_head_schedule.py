import copy
import hashlib
import pickle
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.model.head_schedule import (
    MAX_LAYERS,
    HeadSchedule,
    LayerDifference,
    ScheduleError,
    divisors,
    schedule_text,
)

SMALL = (3, 3, 6, 6, 8, 8, 12, 12, 12, 12, 12, 12)  # paper, section 4
SMALL_TEXT = "3x2,6x2,8x2,12x6"


def outcomes(schedule: HeadSchedule, **kwargs: int) -> dict[str, str]:
    return {rule.name: rule.outcome for rule in schedule.check(**kwargs)}


@pytest.mark.parametrize(
    "source",
    [
        list(SMALL),
        SMALL,
        SMALL_TEXT,
        "3,3,6,6,8,8,12*6",
        "3x1,3x1,6x2,8x2,12x2,12x4",
        " 3 x 2, 6X2 , 8×2,012x06 ",
        str(list(SMALL)),
        ["3x2", 6, 6, "8x2", "12x6"],
        yaml.safe_load("[3, 3, 6, 6, 8, 8, 12, 12, 12, 12, 12, 12]"),
        yaml.safe_load("[3x2, 6x2, 8x2, 12x6]"),
        yaml.safe_load("3x2,6x2,8x2,12x6"),
    ],
)
def test_every_spelling_reads_the_same(source: object) -> None:
    schedule = HeadSchedule.parse(source, d_model=768, n_layers=12)

    assert schedule.heads == SMALL
    assert str(schedule) == schedule_text(SMALL) == SMALL_TEXT
    assert schedule == HeadSchedule(np.array(SMALL), d_model=768)


def test_derived_values_of_the_papers_small_schedule() -> None:
    schedule = HeadSchedule.parse(SMALL_TEXT, d_model=768)

    assert schedule.head_dims == (256, 256, 128, 128, 96, 96, 64, 64, 64, 64, 64, 64)
    assert (schedule.n_layers, schedule.base_heads, schedule.base_head_dim) == (12, 12, 64)
    assert schedule.phases == ((3, 2), (6, 2), (8, 2), (12, 6))
    assert not schedule.is_uniform
    assert HeadSchedule.parse("12x12", d_model=768).is_uniform


@given(st.data())
def test_text_and_list_round_trip(data: st.DataObject) -> None:
    d_model = data.draw(st.integers(1, 400))
    heads = data.draw(st.lists(st.sampled_from([h for h in range(1, d_model + 1) if d_model % h == 0]), min_size=1))
    schedule = HeadSchedule(heads, d_model=d_model)

    assert list(schedule.heads) == heads
    assert [h * dim for h, dim in zip(heads, schedule.head_dims, strict=True)] == [d_model] * len(heads)
    assert HeadSchedule.parse(str(schedule), d_model=d_model, n_layers=len(heads)) == schedule
    assert HeadSchedule.parse(schedule.heads, d_model=d_model).fingerprint == schedule.fingerprint
    passed = outcomes(schedule)
    assert (passed["monotonicity"] == "pass") == (heads == sorted(heads))
    assert (passed["boundary"] == "pass") == (heads[-1] == max(heads))
    assert (passed["even-head-dim"] == "pass") == all(d_model // h % 2 == 0 for h in heads)


@given(st.integers(1, 5000))
def test_divisors(n: int) -> None:
    assert divisors(n) == [k for k in range(1, n + 1) if n % k == 0]


def test_every_problem_is_named_at_once_with_its_remedy() -> None:
    with pytest.raises(ScheduleError) as caught:
        HeadSchedule.parse([6, True, 3.0, 0, 8, 7, 7, "6", -1], d_model=780, n_layers=12)

    assert caught.value.problems == (
        "9 head counts for 12 layers; give 3 more, or set the number of layers to 9",
        "heads[1]=True is not a positive integer",
        "heads[2]=3.0 is not a positive integer",
        "heads[3]=0 is not a positive integer",
        "heads[8]=-1 is not a positive integer",
        "heads[4]=8 does not divide d_model=780; nearest that do: 6, 10",
        "heads[5..6]=7 does not divide d_model=780; nearest that do: 6, 10",
    )
    assert str(caught.value) == "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([12] * 11, "11 head counts for 12 layers; give 1 more, or set the number of layers to 11"),
        ("12x13", "13 head counts for 12 layers; leave out 1, or set the number of layers to 13"),
        ("12", "1 head count for 12 layers; give 11 more"),
        ("", "at least one layer"),
        ([], "at least one layer"),
        ("12x", "'12x' is neither heads (12) nor heads x layers (12x6)"),
        ("12x6x2,,a", "'12x6x2' is neither"),
        ("-3x12", "'-3x12' is neither"),
        ("3.0x12", "'3.0x12' is neither"),
        ("12x0,12x12", "'12x0' gives these heads to no layer"),
        (12, "12 is no schedule"),
        (None, "None is no schedule"),
        (b"12x12", "is no schedule"),
        ([None] * 12, "heads[0]=None is not a positive integer"),
        ([1000] * 12, "heads[0..11]=1000 does not divide d_model=768; the largest that does: 768"),
    ],
)
def test_bad_input_is_refused(source: object, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        HeadSchedule.parse(source, d_model=768, n_layers=12)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "3x999999999999",
        "3x" + "9" * 1_000_000,
        "9" * 1_000_000,
        f"12x{MAX_LAYERS},12",
        ",".join(["12x999999999"] * 1000),
        [10**100_000],
        range(10**12),
        "12," * 1_000_000,
    ],
    ids=["layers", "digits of layers", "digits of heads", "sum", "sum of many", "huge int", "range", "items"],
)
def test_a_count_out_of_any_reason_ends_at_once(source: object) -> None:
    start = time.perf_counter()
    with pytest.raises(ScheduleError) as caught:
        HeadSchedule.parse(source, d_model=768)
    assert time.perf_counter() - start < 1
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("d_model", [0, -768, 768.0, True, None, "768", 10**30, 10**100_000], ids=list("abcdefgh"))
def test_a_width_that_is_none_is_refused(d_model: object) -> None:
    with pytest.raises(ScheduleError, match=r"^d_model=.* is not an integer from 1 to 1048576$"):
        HeadSchedule([1], d_model=d_model)


def test_hard_rules_are_checks_that_controls_may_fail() -> None:
    prism, reverse = HeadSchedule(SMALL, d_model=768), HeadSchedule(SMALL[::-1], d_model=768)

    assert outcomes(prism) == {
        "divisibility": "pass",
        "monotonicity": "pass",
        "boundary": "pass",
        "even-head-dim": "pass",
    }
    assert outcomes(reverse)["monotonicity"] == outcomes(reverse)["boundary"] == "fail"
    assert [rule.sentence for rule in reverse.check()][1:3] == [
        "heads fall from 12 to 8 at layer 6; they may only stay or rise",
        "the last layer has 3 heads; it should have the base's 12",
    ]
    assert outcomes(HeadSchedule([6] * 12, d_model=768))["boundary"] == "pass"
    assert outcomes(HeadSchedule([6] * 12, d_model=768), base_heads=12)["boundary"] == "fail"


def test_an_odd_head_dim_is_legal_by_definition_and_named_by_a_check() -> None:
    rule = HeadSchedule([6, 12], d_model=780).check()[-1]

    assert (rule.name, rule.outcome) == ("even-head-dim", "fail")
    assert rule.sentence.startswith("head dim 65 of layer 1 is odd")


def test_immutable_and_usable_as_a_key() -> None:
    schedule = HeadSchedule(SMALL, d_model=768)

    with pytest.raises(FrozenInstanceError):
        schedule.d_model = 1536  # type: ignore[misc]
    with pytest.raises(TypeError):
        schedule.heads[0] = 4  # type: ignore[index]
    assert {schedule: 1}[HeadSchedule.parse(SMALL_TEXT, d_model=768)] == 1
    assert schedule != HeadSchedule(SMALL, d_model=1536)
    assert pickle.loads(pickle.dumps(schedule)) == copy.deepcopy(schedule) == schedule
    assert eval(repr(schedule)) == schedule


def test_fingerprint_is_the_documented_hash() -> None:
    text = "head-schedule/1 d_model=768 heads=3,3,6,6,8,8,12,12,12,12,12,12"

    assert HeadSchedule(SMALL, d_model=768).fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_fingerprint_tells_schedules_apart_that_weights_cannot() -> None:
    schedules = [HeadSchedule(heads, d_model=768) for heads in (SMALL, SMALL[::-1], [12] * 12, [6] * 12)]
    schedules += [
        HeadSchedule(SMALL, d_model=1536),
        HeadSchedule([1, 12], d_model=768),
        HeadSchedule([1, 1, 2], d_model=768),
    ]

    assert len({schedule.fingerprint for schedule in schedules}) == len(schedules)


def test_diff_names_the_layers() -> None:
    small = HeadSchedule(SMALL, d_model=768)
    longer = HeadSchedule.parse("3x2,6x2,8x1,12x8", d_model=768)

    assert small.diff(small) == ()
    assert small.diff(longer) == (LayerDifference(5, 8, 12), LayerDifference(12, None, 12))
    with pytest.raises(ScheduleError, match="d_model=768 and d_model=1536"):
        small.diff(HeadSchedule(SMALL, d_model=1536))


def test_names_resolve_without_torch() -> None:
    code = (
        "import sys; from prism_transformer.model import HeadSchedule, ScheduleError\n"
        "import prism_transformer, prism_transformer.cost, prism_transformer.design.space\n"
        "assert prism_transformer.HeadSchedule is HeadSchedule\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
