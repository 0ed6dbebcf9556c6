"""`prism data prepare PATH… | fineweb | fineweb-gpt2 --out FOLDER`: text to token shards."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ..data import SPLITS, Corpus, DataSettings, prepare
from ..data.fineweb import FineWebSettings, prepare_fineweb
from ..data.fineweb_shards import FineWebShardSettings, prepare_fineweb_shards
from ..errors import InputError
from .options import CONFIG, Switch, parse

_PROG = "prism data"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the tokens go, and what is said of them."""

    out: Path
    """The folder to make. The same command again goes on where it ended, and changes nothing that is finished."""
    json: Switch = False
    """Print what the folder holds as JSON; everything else goes to stderr."""


@dataclass(frozen=True, kw_only=True)
class PrepareArguments(DataSettings, Output):
    """Turn text into token shards, once, for any number of runs.

    The words fineweb and fineweb-gpt2 fetch FineWeb: prism data prepare fineweb -h
    """

    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PATH ...]", help_behavior_hint="(default: none)"),
    ] = ()
    """Files, folders, globs, or - for standard input. None: the documentation that every Python brings.
    Plain text, .jsonl and .parquet, also compressed (.gz, .xz, .zst)."""


@dataclass(frozen=True, kw_only=True)
class FineWebArguments(FineWebSettings, Output):
    """Stream FineWeb from the Hugging Face hub into shards of GPT-2's tokens."""


@dataclass(frozen=True, kw_only=True)
class FineWebShardArguments(FineWebShardSettings, Output):
    """Fetch FineWeb's ready shards of GPT-2's tokens from the hub, each checked."""


def main(argv: Sequence[str]) -> int:
    """The verb `data`; returns the exit code. InputError and RunError pass through to the caller."""
    word = argv[1] if len(argv) > 1 and argv[0] == "prepare" else None
    if word == "fineweb":
        return _prepare(FineWebArguments, FineWebSettings, prepare_fineweb, argv[2:], f"{_PROG} prepare {word}")
    if word == "fineweb-gpt2":
        return _prepare(
            FineWebShardArguments, FineWebShardSettings, prepare_fineweb_shards, argv[2:], f"{_PROG} prepare {word}"
        )
    arguments = tyro.extras.subcommand_cli_from_dict(
        {"prepare": PrepareArguments}, prog=_PROG, description="Text to token shards.", args=list(argv), config=CONFIG
    )
    if reserved := {"fineweb", "fineweb-gpt2"} & set(arguments.paths):
        word = reserved.pop()
        raise InputError(f"{word} is no path, and stands alone and first: prism data prepare {word}; or give ./{word}")
    return _run(arguments, DataSettings, prepare)


def _prepare(
    arguments: type[Output], settings: type[T], action: Callable[..., Corpus], argv: Sequence[str], prog: str
) -> int:
    return _run(parse(arguments, argv, prog=prog), settings, action)


def _run(arguments: Any, settings: type[Any], action: Callable[..., Corpus]) -> int:
    say = partial(print, file=sys.stderr) if arguments.json else print
    values = {field.name: getattr(arguments, field.name) for field in fields(settings)}
    corpus = action(settings(**values), arguments.out, say=say)
    print(json.dumps(summary(corpus)) if arguments.json else f"ready: {corpus.folder}")
    return 0


def summary(corpus: Corpus) -> dict[str, Any]:
    """What a prepared folder holds."""
    return {
        "folder": str(corpus.folder),
        "fingerprint": corpus.fingerprint,
        "tokenizer": corpus.tokenizer.name,
        "vocab_size": corpus.vocab_size,
        "tokens": {name: sum(shard.tokens for shard in corpus.shards.get(name, ())) for name in SPLITS},
        "manifest": None if corpus.manifest is None else json.loads(corpus.manifest.to_json()),
    }
