"""Settings: frozen dataclasses to and from plain mappings (YAML), with every problem named at once."""

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from .errors import InputError

T = TypeVar("T")
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    tuple: "a list",
    dict: "a mapping",
    Mapping: "a mapping",
}


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises InputError where there is no file, no YAML or no mapping in it."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold a mapping of settings, not {type(value).__name__}")
    return value


def from_mapping(cls: type[T], values: Mapping[str, Any], *, where: str, default: T | None = None) -> T:
    """Build the dataclass `cls` from nested `values`; what they do not name comes from `default`.

    Raises InputError with every unknown key (and the nearest known one), wrong type and missing value.
    """
    problems: list[str] = []
    result = _build(cls, values, where, default, problems)
    if problems:
        raise InputError(problems)
    return typing.cast(T, result)


def to_mapping(settings: Any) -> dict[str, Any]:
    """The plain nested mapping of a dataclass: what YAML and JSON hold."""
    return {field.name: _plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def to_yaml(settings: Any) -> str:
    return yaml.safe_dump(to_mapping(settings), sort_keys=False, allow_unicode=False, default_flow_style=None)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One line for each value that differs between two nested mappings: "training.lr: 0.001 -> 0.002"."""
    lines = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before} -> {after}")
    return lines


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _build(cls: type, values: Any, where: str, default: Any, problems: list[str]) -> Any:
    if values is None:  # a section of a YAML file whose lines are all comments
        values = {}
    if not isinstance(values, Mapping):
        problems.append(f"{where} must be a mapping of settings, not {values!r}")
        return default
    hints, fields = _hints(cls), {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            problems.append(f"{where}: no setting {key!r}; {_elsewhere(key, hints) or nearest(str(key), fields)}")
    arguments = {}
    for name, field in fields.items():
        kind, present = hints[name], name in values
        old = getattr(default, name) if default is not None else dataclasses.MISSING
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            if present or (old is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
                nested = None if old is dataclasses.MISSING else old
                arguments[name] = _build(kind, values.get(name, {}), f"{where}.{name}", nested, problems)
        elif present:
            arguments[name] = _convert(kind, values[name], f"{where}.{name}", problems)
        elif old is dataclasses.MISSING and field.default is field.default_factory is dataclasses.MISSING:
            problems.append(f"{where}.{name} is missing")
        if name not in arguments and old is not dataclasses.MISSING:
            arguments[name] = old
    return None if problems else cls(**arguments)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _elsewhere(key: Any, kinds: Mapping[str, Any]) -> str | None:
    """Where a setting belongs that was written one level too high."""
    for name, kind in kinds.items():
        if dataclasses.is_dataclass(kind) and key in {field.name for field in dataclasses.fields(kind)}:
            return f"it belongs in {name}, as {name}.{key}"
    return None


def _convert(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    """`value` as the annotated `kind`; YAML reads 3e-4 as text, so numbers in text are numbers too."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build(kind, value, where, None, problems)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {key: _convert(arguments[1], item, f"{where}.{key}", problems) for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, where, problems)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, f"{where}[{i}]", problems) for i, item in enumerate(value))
    if origin is typing.Literal:
        if value in arguments:
            return value
        problems.append(f"{where}={value!r}: {nearest(str(value), [str(a) for a in arguments])}")
        return value
    converted = _scalar(kind, value)
    if converted is None:
        problems.append(f"{where}={value!r} must be {_KINDS.get(origin or kind, f'of type {kind}')}")
    return converted


def _scalar(kind: Any, value: Any) -> Any:
    """`value` as bool, int, float, str or another class; None where it is not one."""
    try:
        if kind is bool or isinstance(value, bool):
            return value if kind is bool and isinstance(value, bool) else None
        if kind is int and not isinstance(value, int):
            number = float(value)
            return int(number) if number.is_integer() else None
        if kind is float:
            return float(value) if math.isfinite(float(value)) else None
        if kind is str and isinstance(value, str | int | float):
            return str(value)
        return value if isinstance(value, kind) else None
    except (TypeError, ValueError, OverflowError):
        return None
