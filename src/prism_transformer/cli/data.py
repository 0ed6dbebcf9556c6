"""`prism data prepare PATH… --out FOLDER`: text to token shards."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from ..data import DataSettings, prepare

_PROG = "prism data"


@dataclass(frozen=True, kw_only=True)
class PrepareArguments(DataSettings):
    """Turn text into token shards, once, for any number of runs."""

    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PATH ...]", help_behavior_hint="(default: none)"),
    ] = ()
    """Files, folders, globs, or - for standard input. None: the documentation that every Python brings.
    Plain text, .jsonl and .parquet, also compressed (.gz, .xz, .zst)."""
    out: Path
    """The folder to make. Run again with the same text and settings, the command changes nothing."""


def main(argv: Sequence[str]) -> int:
    """The verb `data`; returns the exit code. InputError and RunError pass through to the caller."""
    arguments = tyro.extras.subcommand_cli_from_dict(
        {"prepare": PrepareArguments}, prog=_PROG, description="Text to token shards.", args=list(argv)
    )
    settings = DataSettings(**{field.name: getattr(arguments, field.name) for field in fields(DataSettings)})
    corpus = prepare(settings, arguments.out)
    print(f"ready: {corpus.folder}")
    return 0
