"""Words that every room writes alike."""

from prism_transformer.wording import count, listed


def test_one_is_singular_and_thousands_are_set_apart() -> None:
    assert [count(n, "run") for n in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


def test_a_list_ends_with_and() -> None:
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
