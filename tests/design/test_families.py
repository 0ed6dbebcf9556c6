import hashlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prism_transformer.design.families import FAMILIES, expand_arm
from prism_transformer.errors import InputError
from prism_transformer.model.head_schedule import HeadSchedule

SMALL = {"n_layers": 12, "d_model": 768, "base_heads": 12}


def one(arm: str, sizes: dict[str, int]) -> HeadSchedule:
    (schedule,) = expand_arm(arm, **sizes).values()
    return schedule


@pytest.mark.parametrize(
    ("n_layers", "d_model", "base_heads", "expected"),
    [
        (12, 768, 12, "3x2,6x2,8x2,12x6"),  # the paper's three, section 4
        (24, 1024, 16, "4x3,8x3,16x18"),
        (24, 1536, 16, "6x3,12x3,16x18"),
        (8, 512, 8, "2x2,4x2,8x4"),
        (36, 1280, 20, "5x3,10x3,20x30"),
        (4, 64, 4, "1x1,2x1,4x2"),  # by the rule: two layers for head dims 64 and 32
        (6, 128, 4, "1x2,2x1,4x3"),  # three layers for two steps, the first takes the remainder
        (2, 768, 12, "3x1,12x1"),  # one layer for three steps
    ],
)
def test_prism_by_rule(n_layers: int, d_model: int, base_heads: int, expected: str) -> None:
    assert str(one("prism", {"n_layers": n_layers, "d_model": d_model, "base_heads": base_heads})) == expected


@pytest.mark.parametrize("arm", ["prism", "reversed", "shuffled-1"])
def test_no_legal_widening_is_an_error_that_says_so(arm: str) -> None:
    with pytest.raises(InputError) as caught:
        expand_arm(arm, n_layers=48, d_model=1600, base_heads=25)

    message = str(caught.value)
    assert "no legal widening" in message
    assert "none from 65 to 256 divides d_model=1600" in message
    assert "take 32 or 40 base heads" in message  # 1600 / 32 = 50 and 1600 / 40 = 40, both below 64, which divides 1600
    assert "8, 10, 16, 20, 25 heads" in message  # head dims 200, 160, 100, 80, 64


@given(st.integers(1, 60), st.integers(1, 64), st.integers(1, 40))
def test_prism_keeps_its_promises(n_layers: int, eighths: int, base_heads: int) -> None:
    base_dim = 8 * eighths
    sizes = {"n_layers": n_layers, "d_model": base_dim * base_heads, "base_heads": base_heads}
    try:
        schedule = one("prism", sizes)
    except InputError:
        powers = [2**k for k in range(1, 9) if base_dim < 2**k <= 4 * base_dim]
        assert n_layers == 1 or not any(sizes["d_model"] % k == 0 for k in powers)
        return
    assert {rule.outcome for rule in schedule.check(base_heads=base_heads)} == {"pass"}
    assert max(schedule.head_dims) <= min(4 * base_dim, 256)
    assert schedule.heads.count(base_heads) == n_layers - min(6, n_layers // 2)
    lengths = [layers for heads, layers in schedule.phases if heads != base_heads]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


def test_uniform_and_sweep() -> None:
    assert expand_arm("uniform", **SMALL) == {"uniform": HeadSchedule([12] * 12, d_model=768)}
    assert expand_arm("uniform-6", **SMALL) == {"uniform-6": HeadSchedule([6] * 12, d_model=768)}
    # head dims of 768 from 64 to 256: 256, 192, 128, 96, 64
    assert {name: str(s) for name, s in expand_arm("sweep", **SMALL).items()} == {
        f"uniform-{h}": f"{h}x12" for h in (3, 4, 6, 8, 12)
    }
    # from 24 to 96, even and a divisor of 360: 90, 72, 60, 40, 36, 30, 24; 45 is odd
    sweep = expand_arm("sweep", n_layers=2, d_model=360, base_heads=15)
    assert [s.heads[0] for s in sweep.values()] == [4, 5, 6, 9, 10, 12, 15]
    assert list(expand_arm("sweep", n_layers=2, d_model=768, base_heads=2)) == [
        "uniform-2"
    ]  # 384 is beyond 256 already


def test_reversed_is_prism_backwards() -> None:
    assert str(one("reversed", SMALL)) == "12x6,8x2,6x2,3x2"


def test_linear_is_the_nearest_legal_count_to_a_straight_line() -> None:
    # 3 + 9 l / 11: 3, 3.8, 4.6, 5.5, 6.3, 7.1, 7.9, 8.7, 9.5, 10.4, 11.2, 12; legal 3, 4, 6, 8, 12
    assert one("linear", SMALL).heads == (3, 4, 4, 6, 6, 8, 8, 8, 8, 12, 12, 12)
    # 2, 4, 6, 8; legal 2, 4, 8: the tie goes to the wider head
    assert one("linear", {"n_layers": 4, "d_model": 512, "base_heads": 8}).heads == (2, 4, 4, 8)
    with pytest.raises(InputError, match="no wider head dim divides d_model"):
        one("linear", {"n_layers": 4, "d_model": 512, "base_heads": 2})
    with pytest.raises(InputError, match="one layer is no line"):
        one("linear", {"n_layers": 1, "d_model": 512, "base_heads": 8})


def orders_by_the_documented_algorithm(heads: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    turn = 0
    while len(found) < count:
        layers = sorted(range(len(heads)), key=lambda i: hashlib.sha256(f"shuffled {turn} {i}".encode()).hexdigest())
        order = tuple(heads[i] for i in layers)
        if order not in (heads, heads[::-1], *found):
            found.append(order)
        turn += 1
    return found


def test_shuffled_follows_its_documented_algorithm() -> None:
    prism = one("prism", SMALL)
    shuffled = [one(f"shuffled-{k}", SMALL).heads for k in range(20)]

    assert shuffled == orders_by_the_documented_algorithm(prism.heads, 20)
    assert all(sorted(heads) == sorted(prism.heads) for heads in shuffled)


def test_shuffled_never_repeats_and_never_is_prism_or_its_reverse() -> None:
    sizes = {"n_layers": 4, "d_model": 64, "base_heads": 4}  # heads 1, 2, 4, 4: 12 orders, less prism and reversed
    shuffled = {one(f"shuffled-{k}", sizes).heads for k in range(10)}

    assert len(shuffled) == 10
    assert not shuffled & {(1, 2, 4, 4), (4, 4, 2, 1)}
    with pytest.raises(InputError, match="no shuffled-10: 0 to 9 exist"):
        one("shuffled-10", sizes)
    with pytest.raises(InputError, match="no order besides prism's and its reverse"):
        one("shuffled-0", {"n_layers": 2, "d_model": 64, "base_heads": 4})
    with pytest.raises(InputError, match="0 to 999 exist"):
        one("shuffled-1000", SMALL)


def test_schedule_text_and_names() -> None:
    schedule = HeadSchedule.parse("6x4,12x8", d_model=768)

    assert expand_arm("6x4,12*8", **SMALL) == {"6x4,12x8": schedule}
    assert expand_arm("abrupt=6x4,12x8", **SMALL) == {"abrupt": schedule}
    assert expand_arm(" wide = uniform-6 ", **SMALL) == {"wide": HeadSchedule([6] * 12, d_model=768)}


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("prsm", "unknown arm 'prsm'; nearest: prism"),
        ("Prism", "nearest: prism"),
        ("revesed", "nearest: reversed"),
        ("unifrom-6", "nearest: uniform-N"),
        ("shufled-2", "nearest: shuffled-K"),
        ("qqqqqq", "known: uniform, uniform-N, sweep, prism, reversed, shuffled-K, linear"),
        ("", "unknown arm ''"),
        ("shuffled", "needs a number"),
        ("uniform-7", "arm uniform-7: heads[0..11]=7 does not divide d_model=768; nearest that do: 6, 8"),
        ("uniform-0", "heads[0]=0 is not a positive integer"),
        ("12x11", "arm 12x11: 11 head counts for 12 layers; give 1 more"),
        ("x=5x12", "arm x=5x12: heads[0..11]=5 does not divide"),
        ("a/b=prism", "'a/b' is no name"),
        ("=prism", "'' is no name"),
        ("all=sweep", "a sweep is many schedules"),
    ],
)
def test_bad_arms_say_what_is_wrong(arm: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        expand_arm(arm, **SMALL)
    assert message in str(caught.value)


def test_bad_sizes_are_refused_before_the_arm() -> None:
    with pytest.raises(InputError, match=r"base heads: heads\[0\.\.11\]=7 does not divide d_model=768"):
        expand_arm("prism", n_layers=12, d_model=768, base_heads=7)
    with pytest.raises(InputError, match=r"base heads: .*out of range"):
        expand_arm("prism", n_layers=10**12, d_model=768, base_heads=12)


@given(
    st.sampled_from(sorted(FAMILIES)), st.integers(1, 40), st.sampled_from([(64, 4), (768, 12), (1280, 20), (96, 8)])
)
def test_every_family_fits_the_sizes(family: str, n_layers: int, shape: tuple[int, int]) -> None:
    d_model, base_heads = shape
    assume(n_layers > 2)
    arm = family.replace("N", "1").replace("K", "0")
    for schedule in expand_arm(arm, n_layers=n_layers, d_model=d_model, base_heads=base_heads).values():
        assert (schedule.n_layers, schedule.d_model) == (n_layers, d_model)
        assert all(dim % 2 == 0 for dim in schedule.head_dims)
