"""How every verb reads its options: a dataclass is the options, and the docstrings of its fields are their help."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import tyro

from ..errors import InputError

T = TypeVar("T")

CONFIG: tuple[Any, ...] = (tyro.conf.OmitArgPrefixes,)

Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""Given or not. A setting of a recipe that is true or false is a plain bool, which --NAME and --no-NAME set."""


def parse(kind: type[T], argv: Sequence[str], *, prog: str, default: T | None = None) -> T:
    """`argv` as a `kind`. A mistake ends the process with code 2 and a sentence; so does, with 0, --help.

    Raises InputError for words that would be taken for something else.
    """
    refuse_misread(argv)
    start = tyro.MISSING_NONPROP if default is None else default
    return tyro.cli(kind, args=list(argv), prog=prog, default=start, config=CONFIG)


def argument(argv: Sequence[str], option: str, what: str) -> str | None:
    """The value of `option`, wherever it stands. Raises InputError where it has none, or several."""
    given = []
    for word, following in pairwise([*argv, "--"]):
        if word.startswith(f"{option}="):
            given.append(word.removeprefix(f"{option}="))
        elif word == option:
            given.append(following)
    if any(not value or value.startswith("--") for value in given):
        raise InputError(f"{option} needs {what}")
    if len(given) > 1:
        raise InputError(f"{option} is given {len(given)} times ({', '.join(given)}); give one")
    return given[0] if given else None


def given_options(argv: Sequence[str]) -> list[str]:
    """The options in `argv`, without their values and spelled with dashes: underscores are understood too."""
    return ["--" + word[2:].partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")]


def refuse_misread(argv: Sequence[str]) -> None:
    """Raise InputError for what would be taken for something else: a flag with a value, --data without one."""
    problems = []
    for word, following in pairwise([*argv, "--"]):
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option.startswith("--") and value.lower() in ("true", "false"):
            problems.append(f"{option} {value}: a flag takes no value; give it alone, or leave it out")
        if option == "--data" and (not value or value.startswith("--")):
            problems.append("--data needs a path; to read the documentation of Python, leave it out")
    if problems:
        raise InputError(problems)
