"""Settings from plain mappings: every value converted or refused, every problem named."""

from dataclasses import dataclass, field
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.errors import InputError
from prism_transformer.settings import differences, from_mapping, nearest, read_yaml, to_mapping, to_yaml


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    count: int = 3
    flag: bool = False
    kind: Literal["red", "blue"] = "red"


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    paths: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


def build(default: Outer | None = None, **values: object) -> Outer:
    return from_mapping(Outer, values, where="file", default=default)


def problems(**values: object) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        build(**{"name": "n"} | values)
    return caught.value.problems


def test_what_is_not_named_has_its_default():
    assert build(name="a") == Outer(name="a", paths=(), limit=None, inner=Inner(rate=0.5, count=3, flag=False))


def test_nested_values_and_lists_are_built():
    found = build(name="a", paths=["x", "y"], limit=4, inner={"rate": 2, "flag": True, "kind": "blue"})
    assert found == Outer(name="a", paths=("x", "y"), limit=4, inner=Inner(rate=2.0, flag=True, kind="blue"))
    assert isinstance(found.inner.rate, float)


def test_what_is_not_named_comes_from_the_given_default():
    default = Outer(name="old", limit=9, inner=Inner(count=7, rate=0.1))
    assert build(default, inner={"rate": 0.2}) == Outer(name="old", limit=9, inner=Inner(count=7, rate=0.2))


@pytest.mark.parametrize(
    ("text", "value"), [("3e-4", 0.0003), ("3.0e-4", 0.0003), ("1", 1.0), ("0.25", 0.25), ("'2'", 2.0)]
)
def test_a_float_as_people_write_it_in_yaml(text, value):
    """YAML 1.1 reads 3e-4 as text."""
    assert build(name="a", inner=yaml.safe_load(f"rate: {text}")).inner.rate == value


@pytest.mark.parametrize(("text", "value"), [("2_048_000", 2048000), ("2e6", 2000000), ("4.0", 4), ("'12'", 12)])
def test_a_whole_number_as_people_write_it_in_yaml(text, value):
    found = build(name="a", inner=yaml.safe_load(f"count: {text}")).inner.count
    assert (found, type(found)) == (value, int)


def test_a_large_whole_number_keeps_every_digit():
    assert build(name="a", limit=2**60 + 1).limit == 2**60 + 1


def test_the_word_none_of_yaml_is_no_value_where_that_is_allowed():
    assert build(Outer(name="a", limit=3), limit=None).limit is None
    assert problems(inner={"count": None}) == ("file.inner.count=None must be a whole number",)


def test_an_empty_section_has_its_defaults():
    assert build(name="a", inner=None).inner == Inner()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": {"count": True}}, "file.inner.count=True must be a whole number"),
        ({"inner": {"rate": False}}, "file.inner.rate=False must be a finite number"),
        ({"inner": {"count": 1.5}}, "file.inner.count=1.5 must be a whole number"),
        ({"inner": {"count": "many"}}, "file.inner.count='many' must be a whole number"),
        ({"inner": {"rate": [1]}}, "file.inner.rate=[1] must be a finite number"),
        ({"inner": {"rate": float("nan")}}, "file.inner.rate=nan must be a finite number"),
        ({"inner": {"rate": ".inf"}}, "file.inner.rate='.inf' must be a finite number"),
        ({"inner": {"flag": 1}}, "file.inner.flag=1 must be true or false"),
        ({"inner": {"flag": "False"}}, "file.inner.flag='False' must be true or false"),
        ({"inner": {"kind": "blu"}}, "file.inner.kind='blu': did you mean 'blue'?"),
        ({"inner": {"kind": 7}}, "file.inner.kind=7: known: red, blue"),
        ({"inner": [1]}, "file.inner must be a mapping of settings, not [1]"),
        ({"paths": "notes.txt"}, "file.paths='notes.txt' must be a list"),
        ({"paths": ["a", None]}, "file.paths[1]=None must be text"),
        ({"name": {"a": 1}}, "file.name={'a': 1} must be text"),
        ({"inner": {"conut": 1}}, "file.inner: no setting 'conut'; did you mean 'count'?"),
        ({"inner": {"zzz": 1}}, "file.inner: no setting 'zzz'; known: rate, count, flag, kind"),
        ({"rate": 1}, "file: no setting 'rate'; it belongs in inner, as inner.rate"),
        ({3: 1}, "file: no setting 3; known: name, paths, rates, limit, inner"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(values, message):
    with pytest.raises(InputError) as caught:
        from_mapping(Outer, {"name": "n", **values}, where="file")
    assert caught.value.problems == (message,)


def test_all_problems_are_named_at_once():
    found = problems(limit="x", colour=1, inner={"count": "y", "rate": "z"}, rates=[1, "q"])
    assert {text.split("=")[0].split(";")[0] for text in found} == {
        "file: no setting 'colour'",
        "file.limit",
        "file.rates[1]",
        "file.inner.count",
        "file.inner.rate",
    }


def test_a_missing_value_is_named():
    with pytest.raises(InputError, match=r"^file\.name is missing$"):
        build()


@given(
    st.builds(
        Outer,
        name=st.text(),
        paths=st.lists(st.text(), max_size=3).map(tuple),
        rates=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple),
        limit=st.none() | st.integers(),
        inner=st.builds(
            Inner,
            rate=st.floats(allow_nan=False, allow_infinity=False),
            count=st.integers(),
            flag=st.booleans(),
            kind=st.sampled_from(["red", "blue"]),
        ),
    )
)
def test_any_settings_come_back_from_their_yaml(settings):
    assert from_mapping(Outer, yaml.safe_load(to_yaml(settings)), where="file") == settings


def test_the_mapping_of_settings_is_plain():
    assert to_mapping(Outer(name="a", paths=("x",))) == {
        "name": "a",
        "paths": ["x"],
        "rates": [],
        "limit": None,
        "inner": {"rate": 0.5, "count": 3, "flag": False, "kind": "red"},
    }


def test_differences_name_the_path_and_both_values():
    old, new = to_mapping(Outer(name="a", limit=1)), to_mapping(Outer(name="a", limit=2, inner=Inner(rate=0.25)))
    assert differences(old, new) == ["limit: 1 -> 2", "inner.rate: 0.5 -> 0.25"]
    assert differences(old, old) == []
    assert differences({"a": {"b": 1}}, {"a": {"c": 2}}) == ["a.b: 1 -> None", "a.c: None -> 2"]


def test_nearest_names_the_close_one_or_all():
    assert nearest("uniforn", ["uniform", "prism"]) == "did you mean 'uniform'?"
    assert nearest("x", ["uniform", "prism"]) == "known: uniform, prism"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"a: [1", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"- 1\n- 2\n", "must hold a mapping of settings, not list"),
        (b"", "must hold a mapping of settings, not NoneType"),
    ],
)
def test_a_file_without_settings_is_refused(tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_yaml(path)
