"""Budgets in words, and what is counted of them."""

import math

import pytest

from prism_transformer.errors import InputError
from prism_transformer.search.budget import Budget, Prices, busy_seconds


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("2h", "seconds", 7200),
        ("1h30m", "seconds", 5400),
        ("50M tokens", "tokens", 50_000_000),
        ("1.5e6 tokens", "tokens", 1_500_000),
        ("2,000,000 tokens", "tokens", 2_000_000),
        ("40 runs", "runs", 40),
        ("1run", "runs", 1),
        (None, "seconds", math.inf),
    ],
)
def test_budgets_are_read(text: str | None, unit: str, amount: float) -> None:
    assert Budget.parse(text) == Budget(unit, amount)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "soon", "40", "0 runs", "0h", "-3 runs", "40 rnus"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="budget="):
        Budget.parse(text)


def test_a_run_is_paid_in_the_unit_of_the_budget() -> None:
    """600 tokens of training and 300 of evaluation, which take a third: 700 at 100 a second are 7 s."""
    assert Prices("runs", 100, 300).of(600, 4) == 4
    assert Prices("tokens", 100, 300).of(600, 4) == 2400
    assert Prices("seconds", 100, 300).of(600, 4) == pytest.approx(28)


def test_time_counts_once_while_several_work_and_not_while_nobody_does() -> None:
    assert busy_seconds([(0, 10), (5, 12), (6, 7), (100, 101)]) == 13
    assert busy_seconds([]) == 0
