"""`prism data prepare fineweb`: FineWeb from the hub as GPT-2's tokens, streamed, for as many tokens as are asked for.

The documents keep the order of the data set. Which split one falls into depends on the hash of its text alone, so exact
duplicates stay together. A kill at any moment costs the unit that was being written, some 33M tokens, and the result is
that of an unbroken run, byte for byte.
"""

import importlib.util
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..files import write_text
from ..settings import differences
from .corpus import TOKENIZER, Corpus
from .encode import Part, SplitOutput, encoded_batches
from .fineweb_network import Patience, parse_tokens, require_room
from .fineweb_stream import HUB, FineWebStream, resolve_revision
from .fineweb_units import Unit, Units, remove_units
from .manifest import MANIFEST, SPLITS, Counts, Manifest
from .pieces import pieces
from .publish import claim, publish
from .shards import id_dtype
from .splits import text_key
from .summary import manifest_lines, most_frequent, tokenizer_entry
from .tokenizer import Tokenizer, load_tokenizer

UNIT_TOKENS = 2**25
"""of training in a unit: 64 MB on disk, and what a kill may cost"""
BATCH_CHARACTERS = 4_000_000
"""of documents that are encoded together, one to a core at a time"""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FineWebSettings:
    """Which part of FineWeb, and how much of it."""

    subset: str = "sample-10BT"
    """sample-10BT (our reading: the paper names none), sample-100BT, sample-350BT, CC-MAIN-2024-10 or another crawl."""
    tokens: str = "2.9B"
    """Tokens of training text, GPT-2's.
    The paper's small model takes 2.9B, medium 10.5B and large 21B; sample-10BT has 10.3B."""
    validation_share: float = 0.004
    """Part of the documents, beside those, held out for validation: 12M tokens of 2.9B."""
    test_share: float = 0.004
    """Part of the documents, beside those, held out and never read by a search."""
    source: str = HUB
    """The data set of the hub, or a folder that holds (a part of) it, as hf download writes it."""
    revision: str | None = None
    """A commit, branch or tag of the hub; default: the newest when the command first runs, and then that one."""

    def check(self) -> None:
        """Raise InputError with every value that cannot be."""
        problems: list[str] = []
        try:
            parse_tokens(self.tokens)
        except InputError as error:
            problems += error.problems
        shares = {"validation_share": self.validation_share, "test_share": self.test_share}
        problems += [f"{name}={share} is outside 0 .. 0.5" for name, share in shares.items() if not 0 <= share <= 0.5]
        if not problems and sum(shares.values()) >= 1:
            problems.append(
                f"validation_share={self.validation_share} and test_share={self.test_share} leave no training text"
            )
        if self.validation_share == 0:
            problems.append("validation_share=0 leaves nothing to measure a loss on; the default is 0.004")
        if problems:
            raise InputError(problems)


def prepare_fineweb(settings: FineWebSettings, folder: Path, *, say: Say = print) -> Corpus:
    """Prepare FineWeb in `folder`, go on where an earlier call was ended, or open what is complete there.

    Raises InputError for settings, folders and data sets that cannot be, RunError where the network stays away.
    """
    settings.check()
    if importlib.util.find_spec("datasets") is None:
        raise InputError(
            "FineWeb is streamed by datasets, which is not installed: pip install 'prism-transformer[hub]'"
        )
    with claim(folder, mark=MANIFEST, resume=True) as partial:
        for place in (folder, partial):  # finished, or about to be
            if (place / MANIFEST).exists():
                _refuse_differences(folder, Manifest.read(place).settings, settings)
        if (folder / MANIFEST).exists():
            say(f"data: {folder} holds this text, prepared with these settings")
            return Corpus.open(folder)
        if not (partial / MANIFEST).exists():
            _build(settings, folder, partial, say)
        remove_units(partial)
        publish(partial, mark=MANIFEST)
    return Corpus.open(folder)


def _build(settings: FineWebSettings, folder: Path, partial: Path, say: Say) -> None:
    """Everything of the corpus, its manifest last, into `partial`, beside the units that it was made of."""
    tokenizer = load_tokenizer("gpt2")
    units, target = Units(partial), parse_tokens(settings.tokens)
    share = 1 + settings.validation_share + settings.test_share
    left = max(0, target - units.train_tokens)
    if units.done:
        _refuse_differences(folder, units.done[0].settings, settings)
        say(f"going on behind {units.train_tokens:,} tokens that are prepared")
    say(require_room(folder, round(id_dtype(tokenizer.vocab_size).itemsize * share * left)))
    if left and not (units.done and units.done[-1].ended):
        patience = Patience(say)
        known = units.done[-1] if units.done else None
        stated = known.settings if known else _stated(settings) | {"revision": _revision(settings, patience, say)}
        stream = FineWebStream(
            stated["source"],
            settings.subset,
            revision=stated["revision"],
            state=known.position if known else None,
            patience=patience,
        )
        _encode_units(stream, units, tokenizer, stated, say)
    if not units.train_tokens:
        raise InputError(f"{settings.source}: no text in {settings.subset}")
    _finish(units, tokenizer, partial, say)
    if units.train_tokens < target:
        say(f"warning: {settings.subset} has {units.train_tokens:,} tokens of training text, {target:,} were asked for")


def _stated(settings: FineWebSettings) -> dict[str, Any]:
    """The settings as the manifest holds them."""
    folder = Path(settings.source).expanduser()
    source = str(folder) if folder.is_dir() else settings.source
    return asdict(settings) | {"tokens": parse_tokens(settings.tokens), "source": source}


def _revision(settings: FineWebSettings, patience: Patience, say: Say) -> str | None:
    if Path(settings.source).expanduser().is_dir():
        return None
    return resolve_revision(settings.source, settings.revision, patience=patience, say=say)


def _refuse_differences(folder: Path, known: dict[str, Any], settings: FineWebSettings) -> None:
    """Raise InputError naming every setting that differs from those that the folder was begun with."""
    asked = _stated(settings)
    if settings.revision is None:
        asked["revision"] = known.get("revision")
    if changed := differences(known, asked):
        raise InputError(
            "\n  ".join([f"{folder} was begun with other settings; choose another folder, or delete it:", *changed])
        )


class _Behind(NamedTuple):
    """What is known when a batch has been read."""

    position: dict[str, Any] | None
    """Where the next one begins."""
    empty: int
    """Documents without text, since this process began."""
    ended: bool


def _encode_units(
    stream: FineWebStream, units: Units, tokenizer: Tokenizer, settings: dict[str, Any], say: Say
) -> None:
    """Write units until there are as many tokens of training as the settings ask for, or the stream ends."""
    behind: deque[_Behind] = deque()
    have, target, output, empty = units.train_tokens, settings["tokens"], None, 0
    try:
        with closing(_batches(stream, settings, behind)) as batches:
            for batch, ids in encoded_batches(batches, tokenizer):
                output = output or SplitOutput(units.begin(), tokenizer)
                output.add(batch, ids)
                now, full = behind.popleft(), output.tokens(0) >= UNIT_TOKENS or have + output.tokens(0) >= target
                if not (full or now.ended):
                    continue
                _commit(units, output, settings, now, now.empty - empty)
                have, output, empty = units.train_tokens, None, now.empty
                say(f"prepared {have:,} of {target:,} tokens ({min(1, have / target):.0%})")
                if have >= target:
                    return
    finally:
        if output:
            output.abandon()


def _commit(units: Units, output: SplitOutput, settings: dict[str, Any], now: _Behind, empty: int) -> None:
    encoded = output.close()
    unit = Unit(settings=settings, position=now.position, splits=encoded.splits, empty=empty, ended=now.ended)
    units.commit(unit, encoded)


def _batches(stream: FineWebStream, settings: dict[str, Any], behind: deque[_Behind]) -> Generator[list[Part]]:
    """The documents in batches, cut into pieces; `behind` gets an entry with each. The last one may be empty.

    Where a batch ends depends on its own documents alone, so one after a resumption is as it would have been.
    """
    batch: list[Part] = []
    characters = empty = 0
    with closing(stream.documents()) as documents:
        for number, text in enumerate(documents):
            if not text or text.isspace():
                empty += 1
                continue
            split = _split(text, settings)
            batch += [Part(number, split, first, piece) for first, piece in _pieces(text)]
            characters += len(text)
            if characters >= BATCH_CHARACTERS:
                behind.append(_Behind(stream.position(), empty, False))
                yield batch
                batch, characters = [], 0
        behind.append(_Behind(stream.position(), empty, True))
        yield batch


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    for k, piece in enumerate(pieces([text])):
        yield k == 0, piece


def _split(text: str, settings: dict[str, Any]) -> int:
    """The place in SPLITS of a document."""
    part = text_key(text) / 2**64
    held_out = settings["validation_share"] + settings["test_share"]
    return 0 if part >= held_out else 1 if part < settings["validation_share"] else 2


def _finish(units: Units, tokenizer: Tokenizer, partial: Path, say: Say) -> None:
    """The manifest over all units, once their files are those of the corpus."""
    encoded = units.merge()
    settings = units.done[0].settings
    tokenizer.save(partial / TOKENIZER)
    tokens = sum(split.tokens for split in encoded.splits.values())
    where = f"{settings['source']}{'@' + settings['revision'] if settings['revision'] else ''}"
    manifest = Manifest(
        settings=settings,
        sources=(),
        origin=f"{where}, {settings['subset']}",
        tokenizer=tokenizer_entry(tokenizer),
        splits=encoded.splits,
        counts=Counts(
            documents=sum(split.documents for split in encoded.splits.values()),
            documents_empty=sum(unit.empty for unit in units.done),
            tokens_total=tokens,
            tokens_kept=tokens,
        ),
        most_frequent=most_frequent(tokenizer, encoded.id_counts[SPLITS.index("train")]),
        lost_share=0.0,  # GPT-2's BPE gives back every byte
    )
    write_text(partial / MANIFEST, manifest.to_json())
    for line in manifest_lines(manifest):
        say(line)
