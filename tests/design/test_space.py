"""The space of schedules against a brute force that knows no automaton: all lists, filtered by definition."""

import math
from collections import Counter
from itertools import groupby, islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_transformer.design.space import ScheduleSpace
from prism_transformer.errors import InputError
from prism_transformer.model.head_schedule import HeadSchedule


def brute_force(space: ScheduleSpace) -> list[tuple[int, ...]]:
    counts = [h for h in range(1, space.d_model + 1) if space.d_model % h == 0]
    counts = [h for h in counts if (h <= space.base_heads if space.allowed_heads is None else h in space.allowed_heads)]
    return [heads for heads in product(counts, repeat=space.n_layers) if keeps_constraints(space, heads)]


def keeps_constraints(space: ScheduleSpace, heads: tuple[int, ...]) -> bool:
    dims = [space.d_model // h for h in heads]
    if space.monotone and list(heads) != sorted(heads):
        return False
    if space.boundary and heads[-1] != space.base_heads:
        return False
    if space.even_head_dim and any(dim % 2 for dim in dims):
        return False
    if space.max_head_dim is not None and max(dims) > space.max_head_dim:
        return False
    if heads.count(space.base_heads) < space.min_base_layers:
        return False
    if space.phase_layers is not None:
        low, high = space.phase_layers
        for count, run in groupby(heads):
            if count != space.base_heads and not low <= len(list(run)) <= high:
                return False
    return True


@st.composite
def small_spaces(draw: st.DrawFn) -> ScheduleSpace:
    d_model, counts = draw(st.sampled_from([(12, (1, 2, 3, 4, 6)), (16, (1, 2, 4, 8, 16)), (18, (1, 2, 3, 9))]))
    allowed = draw(st.none() | st.lists(st.sampled_from(counts), min_size=1, unique=True).map(tuple))
    low = draw(st.integers(1, 3))
    return ScheduleSpace(
        n_layers=draw(st.integers(1, 5)),
        d_model=d_model,
        base_heads=draw(st.sampled_from(counts)),
        monotone=draw(st.booleans()),
        boundary=draw(st.booleans()),
        even_head_dim=draw(st.booleans()),
        max_head_dim=draw(st.none() | st.integers(1, d_model)),
        min_base_layers=draw(st.integers(0, 4)),
        allowed_heads=allowed,
        phase_layers=draw(st.none() | st.integers(low, 4).map(lambda high: (low, high))),
    )


@given(small_spaces())
@settings(max_examples=300, deadline=None)
def test_agrees_with_brute_force(space: ScheduleSpace) -> None:
    expected = brute_force(space)

    assert space.count == len(expected)
    assert [schedule.heads for schedule in space] == expected
    assert [space[index].heads for index in range(space.count)] == expected
    assert (space.why_empty() is None) == bool(expected)


@given(small_spaces(), st.data())
@settings(max_examples=100, deadline=None)
def test_membership_is_the_constraints(space: ScheduleSpace, data: st.DataObject) -> None:
    counts = [h for h in range(1, space.base_heads + 1) if space.d_model % h == 0]
    heads = tuple(data.draw(st.lists(st.sampled_from(counts), min_size=space.n_layers, max_size=space.n_layers)))
    allowed = space.allowed_heads is None or set(heads) <= set(space.allowed_heads)

    assert (HeadSchedule(heads, d_model=space.d_model) in space) == (allowed and keeps_constraints(space, heads))


@given(small_spaces())
@settings(max_examples=100, deadline=None)
def test_neighbours_are_members_one_contiguous_change_away(space: ScheduleSpace) -> None:
    for schedule in islice(space, 10):
        found = [near.heads for near in space.neighbours(schedule)]
        assert len(set(found)) == len(found)
        for heads in found:
            assert heads != schedule.heads
            assert keeps_constraints(space, heads)
            changed = [layer for layer in range(space.n_layers) if heads[layer] != schedule.heads[layer]]
            assert changed == list(range(changed[0], changed[-1] + 1))
            assert len({heads[layer] for layer in changed}) == len({schedule.heads[layer] for layer in changed}) == 1


def test_neighbours_of_the_papers_small_schedule() -> None:
    space = ScheduleSpace(n_layers=12, d_model=768, base_heads=12, max_head_dim=256, phase_layers=(2, 4))
    near = {str(schedule) for schedule in space.neighbours(HeadSchedule.parse("3x2,6x2,8x2,12x6", d_model=768))}

    # a boundary moves, a step changes its width, a step vanishes, a step appears: worked by hand
    assert {"3x2,6x2,8x3,12x5", "4x2,6x2,8x2,12x6", "3x2,6x4,12x6", "3x2,8x4,12x6", "6x4,8x2,12x6"} <= near
    assert "3x3,6x1,8x2,12x6" not in near
    assert "3x2,6x2,8x2,12x6" not in near


def test_the_papers_constraints_counted_by_a_formula() -> None:
    # monotone lists that end at the base: choose 11 of 7 head counts with repetition, C(11 + 6, 6)
    assert ScheduleSpace(n_layers=12, d_model=768, base_heads=12).count == math.comb(17, 6)


def test_a_space_too_large_to_list_is_counted_and_drawn_from() -> None:
    space = ScheduleSpace(n_layers=96, d_model=12288, base_heads=96, monotone=False, boundary=False)
    counts = sum(1 for h in range(1, 97) if 12288 % h == 0)

    assert space.count == counts**96
    assert all(schedule in space for schedule in space.sample(3, seed=1))
    assert next(iter(space)).heads == (1,) * 96


def test_draws_are_uniform() -> None:
    space = ScheduleSpace(n_layers=4, d_model=12, base_heads=6)  # heads 1, 2, 3, 6: C(3 + 3, 3) = 20 schedules
    assert space.count == 20
    draws = Counter(space.sample(1, seed=seed)[0] for seed in range(4000))

    assert len(draws) == 20
    chi_square = sum((n - 200) ** 2 / 200 for n in draws.values())
    assert chi_square < 43.8  # 99.9 % quantile with 19 degrees of freedom


def test_draws_are_distinct_and_repeatable() -> None:
    space = ScheduleSpace(n_layers=4, d_model=12, base_heads=6)

    assert space.sample(5, seed=3) == space.sample(5, seed=3)
    assert space.sample(5, seed=3) != space.sample(5, seed=4)
    assert set(space.sample(20, seed=0)) == set(space)
    with pytest.raises(InputError, match=r"21 schedules asked for, and the space holds 20"):
        space.sample(21, seed=0)


@pytest.mark.parametrize(
    ("constraints", "culprits"),
    [
        ({"min_base_layers": 5}, ["min_base_layers=5 (without: 84)"]),
        ({"max_head_dim": 32}, ["max_head_dim=32 (without: 84)"]),
        ({"allowed_heads": (3, 6)}, ["boundary=True", "allowed_heads=(3, 6)"]),
        ({"allowed_heads": (3, 6), "min_base_layers": 5}, ["allowed_heads=(3, 6)", " and ", "min_base_layers=5"]),
    ],
)
def test_an_empty_space_names_its_culprits(constraints: dict[str, object], culprits: list[str]) -> None:
    space = ScheduleSpace(n_layers=4, d_model=768, base_heads=12, **constraints)  # C(3 + 6, 6) = 84 without them

    assert space.count == 0
    assert list(space) == []
    reason = space.why_empty()
    assert reason is not None
    assert all(culprit in reason for culprit in culprits)
    with pytest.raises(InputError, match="empties the space"):
        space.sample(1, seed=0)


def test_bad_constraints_are_refused_all_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ScheduleSpace(n_layers=4, d_model=768, base_heads=12, allowed_heads=(5, 12), phase_layers=(3, 2))
    assert "allowed heads[0]=5 does not divide d_model=768; nearest that do: 4, 6" in str(caught.value)
    assert "phase_layers=(3, 2)" in str(caught.value)
    with pytest.raises(InputError, match="base heads"):
        ScheduleSpace(n_layers=4, d_model=768, base_heads=7)
