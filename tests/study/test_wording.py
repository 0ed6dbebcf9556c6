import pytest

from prism_transformer.study.wording import (
    decimals,
    percent,
    percent_digits,
    plain,
    rounded,
    signed,
    speed_caveat,
    tokens_factor,
)


def test_signs_are_typographic_and_nothing_is_a_dash() -> None:
    assert signed(-0.01444) == "−0.0144" and signed(0.5, 2) == "+0.50" and signed(None) == "–"
    assert plain(3.37481) == "3.3748" and plain(None) == "–"


@pytest.mark.parametrize(("spread", "digits"), [(0.012, 3), (0.0021, 4), (3.0, 2), (1e-9, 6), (None, 4), (0.0, 4)])
def test_decimals_show_two_figures_of_a_spread(spread: float | None, digits: int) -> None:
    assert decimals(spread) == digits


def test_percent_has_the_digits_that_it_needs() -> None:
    assert percent(-0.0043) == "−0.43 %" and percent(0.25, sign=False) == "25.0 %" and percent(0.00004) == "+0.004 %"
    assert percent(None) == "–" and percent(0.0) == "+0.00 %"
    assert (
        percent_digits(-0.0020, 0.0001) == 2 and percent_digits(None, None) is None and percent_digits(0.1, 0.1) is None
    )


def test_tokens() -> None:
    assert tokens_factor(0.992) == "0.8 % fewer" and tokens_factor(1.3) == "30 % more"


def test_only_zero_reads_as_zero() -> None:
    # .0001 of 3.2 nats is .003 %, whatever digits its wide interval is written in
    assert percent(0.0001 / 3.2, 1) == "+0.003 %" and percent(-0.000001 / 3.2) == "−0.00003 %"
    assert percent(0.0, 1) == "+0.0 %" and percent(0.0006, 1) == "+0.1 %"
    assert tokens_factor(0.9998) == "0.02 % fewer" and tokens_factor(1.0) == "just as many"


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [
        (0.51849, None, "0.5185"),
        (22.2749, None, "22.27"),
        (75_652.96, None, "75,653"),
        (4_009_145_899.0, None, "4.01e+09"),
        (0.5, 22.27, "0.50"),
        (None, None, "–"),
    ],
)
def test_scores_have_the_digits_that_their_size_asks_for(value, like, text):
    assert rounded(value, like) == text


def test_speeds_that_other_work_has_moved_are_told() -> None:
    def of(speed: float, heads: tuple[int, ...] = (4, 4)) -> str:
        arms = {"uniform": {"heads": (4, 4), "relative_speed": 1.0}, "less": {"heads": heads, "relative_speed": speed}}
        return speed_caveat({"baseline": "uniform", "arms": arms})

    assert of(1.04) == "" and of(1.3, heads=(1, 4)) == ""
    assert of(1.23).startswith("Arms with the same heads differ in speed by 23 % here")
    assert of(0.9) == (
        "Arms with the same heads differ in speed by 10 % here, from other work on the machine, so speeds mean little "
        "and nothing is said at equal time."
    )
