"""The difference to the paper and the seeds' spread, against scipy's own test from means and sds."""

import pytest
from scipy import stats

from prism_transformer.reproduce.beside import beside, claim, half_width
from prism_transformer.reproduce.cells import COLUMNS, cells
from prism_transformer.reproduce.paper import Figure

PAPER = Figure(3.3748, 0.0027)


@pytest.mark.parametrize("ours", [[3.3760, 3.3710, 3.3742], [3.3900, 3.3912, 3.3893], [3.37, 3.38, 3.40, 3.35, 3.39]])
def test_within_is_what_welch_s_test_does_not_reject(ours: list[float]) -> None:
    row = beside("loss", "nats", PAPER, ours)
    described = stats.describe(ours)
    assert row.difference == pytest.approx(described.mean - 3.3748)

    def p_value(mean: float) -> float:
        sd = described.variance**0.5
        return stats.ttest_ind_from_stats(mean, sd, len(ours), PAPER.mean, PAPER.sd, 3, equal_var=False).pvalue

    assert row.within == (p_value(described.mean) > 0.05)
    assert p_value(PAPER.mean + row.half_width) == pytest.approx(0.05, rel=1e-6)


def test_without_the_paper_s_sd_ours_stands_for_it() -> None:
    """sd 1 of both, 3 seeds each: t(4) at .975 is 2.7764, times sqrt(2 / 3)."""
    row = beside("gain", "nats", Figure(0.0), [-1.0, 0.0, 1.0])
    assert row.half_width == pytest.approx(2.776445 * (2 / 3) ** 0.5, rel=1e-6)
    assert half_width(0.0, 0.0, 3) == 0.0
    assert beside("acc", "%", Figure(40.0), [50.0, 50.0]).within is None, "two equal seeds show no spread"


@pytest.mark.parametrize(("values", "n"), [([], 0), ([3.37], 1)])
def test_one_seed_shows_no_spread(values: list[float], n: int) -> None:
    row = beside("loss", "nats", PAPER, values)
    assert (row.within, row.half_width, row.n) == (None, None, n)
    assert cells(row)[5] == "n/a"


@pytest.mark.parametrize(
    ("values", "sign", "holds"),
    [
        ([-2.0, -2.1, -1.9], -1, True),
        ([2.0, 2.1, 1.9], -1, False),
        ([2.0, -2.1, 0.9], -1, None),
        ([2.0, 2.1, 1.9], 1, True),
        ([0.1, -0.1, 0.05], 0, True),
        ([2.0, 2.1, 1.9], 0, False),
        ([2.0], 1, None),
    ],
)
def test_a_claim_in_words_holds_by_the_interval(values: list[float], sign: int, holds: bool | None) -> None:
    row = claim("distance", "tokens", "negative", values, sign=sign)
    assert row.within is holds
    assert cells(row)[5] == {True: "holds", False: "does not", None: "cannot tell"}[holds]


def test_cells_show_the_digits_of_the_unit_and_leave_none_empty() -> None:
    full = cells(beside("loss", "nats", PAPER, [3.3760, 3.3710, 3.3742]))
    assert full[:5] == ["loss", "3.3748 ± 0.0027", "3.3737 ± 0.0025", "3", full[4]]
    assert full[4].startswith("−0.0011 ± ") and full[5] == "yes"
    ppl = cells(beside("wikitext", "words", Figure(52.3), [26_396_908.2, 26_396_910.2]))
    assert ppl[2:5] == ["26,396,909 ± 1.4", "2", ppl[4]] and ppl[4].startswith("+26,396,857 ± ")
    for row in (beside("a", "%", None, []), beside("a", "ratio", None, [1.0]), beside("a", "words", PAPER, [])):
        assert len(cells(row)) == len(COLUMNS) and all(cells(row))
