"""Text to a corpus: find the sources, split them, train the tokenizer where one is asked for, encode, write."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, RunError, is_full_disk
from .corpus import TOKENIZER, Corpus, is_prepared
from .embedded import PythonDocumentation
from .encode import encode, read_parts, survey, training_sample
from .manifest import MANIFEST, SPLITS, Manifest, SourceInfo
from .publish import claim, publish
from .sources import Sources, find_files
from .splits import split_edges
from .summary import describe, manifest_lines, survey_lines
from .tokenizer import Tokenizer, load_tokenizer

Say = Callable[[str], None]
_PROBE_CHARACTERS = 100_000


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What a model reads: text, its tokenizer, and how much of the text is held out."""

    paths: tuple[str, ...] = ()
    """Files, folders, globs, or - for standard input. None: the documentation that every Python brings.
    Plain text, .jsonl and .parquet, also compressed (.gz, .xz, .zst); or one folder that is prepared already."""
    tokenizer: str = "bpe"
    """bpe (trained on the training split), gpt2, bytes, or the folder of a Hugging Face tokenizer."""
    vocab_size: int = 4096
    """Rows of the vocabulary of a tokenizer trained here (bpe)."""
    text_field: str = "text"
    """The field of .jsonl lines, and the column of .parquet files, that holds the text."""
    validation_share: float = 0.05
    """Part of the text, by bytes, held out for validation, on which decisions are made.
    Related documents stay together, so a few large ones may be most of a small split: hold out more of a small text."""
    test_share: float = 0.05
    """Part of the text, by bytes, held out and never read by a search."""
    held_out_bytes: int = 2_000_000
    """Most bytes of text in each of the two: every run ends with a loss on all of the validation split, and more of it
    tells little more. What is beyond is trained on."""

    @property
    def named_tokenizer(self) -> str | None:
        """The tokenizer to load; None where one is trained on the text."""
        return None if self.tokenizer == "bpe" else self.tokenizer

    def shares(self, text_bytes: float) -> tuple[float, float]:
        """The parts of a text of so many bytes that are held out for validation and for the test."""
        most = self.held_out_bytes / max(text_bytes, 1)
        return min(self.validation_share, most), min(self.test_share, most)

    def problems(self) -> list[str]:
        """Every value that cannot be, with the rule and the remedy."""
        problems = []
        if self.named_tokenizer is None and not 257 <= self.vocab_size <= 2**20:
            problems.append(
                f"vocab_size={self.vocab_size} is outside 257 .. {2**20:,}: a byte-level BPE has the 256 bytes, "
                f"end-of-text, and merges beyond them"
            )
        shares = {"validation_share": self.validation_share, "test_share": self.test_share}
        for name, share in shares.items():
            if not 0 <= share < 1:
                problems.append(f"{name}={share} is outside 0 .. 1; the default is 0.05")
        if self.held_out_bytes < 1:
            problems.append(f"held_out_bytes={self.held_out_bytes} must be at least 1; the default is 2,000,000")
        if not problems and sum(shares.values()) >= 1:
            problems.append(f"validation_share + test_share = {sum(shares.values())} leaves no text for training")
        return problems


def prepare(settings: DataSettings, folder: Path, *, say: Say = print) -> Corpus:
    """Prepare the text of `settings` in `folder`, or open what is complete there with the same settings and sources.

    A single path that is a prepared folder already is opened as it is, and `folder` is not touched. Several processes
    may call this at once: one works, the others wait and open its result. Raises InputError for faults of settings and
    sources and for a folder that holds something else; RunError where the disk is full.
    """
    if problems := settings.problems():
        raise InputError(problems)
    if len(settings.paths) == 1 and is_prepared(path := Path(settings.paths[0]).expanduser()):
        return _open_prepared(path, settings)
    try:
        with claim(folder, mark=MANIFEST) as partial:
            return _prepare(settings, folder, partial, say)
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise RunError(f"{folder}: no space left on the disk; free some, and run the command again") from None


def _open_prepared(folder: Path, settings: DataSettings) -> Corpus:
    """A folder of tokens as it is; a tokenizer asked for by name must be the one that made it."""
    asked = settings.named_tokenizer
    corpus = Corpus.open(folder, tokenizer=asked)
    if asked and load_tokenizer(asked).fingerprint != corpus.tokenizer.fingerprint:
        raise InputError(
            f"{folder}: prepared with the tokenizer {corpus.tokenizer.name}, not with {asked}; "
            f"leave the tokenizer out, or prepare the text again"
        )
    return corpus


def _prepare(settings: DataSettings, folder: Path, partial: Path, say: Say) -> Corpus:
    known = Manifest.read(folder) if (folder / MANIFEST).exists() else None
    is_same = known is not None and known.settings == _as_json(settings)
    problems: list[str] = []
    sources, tokenizer = None, None
    try:
        sources = _find_sources(settings, partial)
    except InputError as error:
        if is_same:
            say(f"data: {folder} is used as it was prepared; its sources are not all there now")
            return Corpus.open(folder)
        problems += error.problems
    try:
        tokenizer = None if settings.named_tokenizer is None else load_tokenizer(settings.named_tokenizer)
    except InputError as error:
        if not is_same:  # else its copy is in the folder
            problems += error.problems
    if sources is None or problems:
        raise InputError(problems)
    infos = sources.identity({info.name: info for info in known.sources} if known else {})
    if known:
        _refuse_differences(folder, known, settings, infos, tokenizer)
        say(f"data: {folder} holds this text, prepared with these settings")
    else:
        _build(settings, sources, infos, tokenizer, partial, say)
        publish(partial, mark=MANIFEST)
    return Corpus.open(folder)


def _find_sources(settings: DataSettings, spool: Path) -> Sources:
    if not settings.paths:
        return PythonDocumentation()
    return find_files(settings.paths, text_field=settings.text_field, spool=spool)


def _as_json(settings: DataSettings) -> dict[str, Any]:
    """The settings as the manifest holds them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}


def _refuse_differences(
    folder: Path, known: Manifest, settings: DataSettings, infos: tuple[SourceInfo, ...], tokenizer: Tokenizer | None
) -> None:
    """Raise InputError naming every setting and source that differs from what the folder was made with."""
    differences = [
        f"{name} was {known.settings.get(name)!r}, is now {value!r}"
        for name, value in _as_json(settings).items()
        if value != known.settings.get(name) and name != "paths"
    ]
    before = {info.name: (info.size, info.sha256) for info in known.sources}
    now = {info.name: (info.size, info.sha256) for info in infos}
    differences += [f"{name} was read then, is not given now" for name in before if name not in now]
    differences += [f"{name} was not read then" for name in now if name not in before]
    differences += [f"{name} has changed since" for name in now if name in before and now[name] != before[name]]
    if not differences and list(before) != list(now):
        differences.append("the sources are in another order")
    if not differences and tokenizer and tokenizer.fingerprint != known.tokenizer["fingerprint"]:
        differences.append(f"the tokenizer {settings.tokenizer} has changed since")
    if differences:
        more = [f"and {len(differences) - 8} more"] if len(differences) > 8 else []
        headline = f"{folder} was prepared from other text or with other settings; choose another folder, or delete it:"
        raise InputError("\n  ".join([headline, *differences[:8], *more]))


def _build(
    settings: DataSettings,
    sources: Sources,
    infos: tuple[SourceInfo, ...],
    tokenizer: Tokenizer | None,
    partial: Path,
    say: Say,
) -> None:
    """Write everything of a corpus, its manifest included, into `partial`."""
    say(f"reading {sources.origin}")
    found = survey(sources)
    for line in survey_lines(sources, found):
        say(line)
    shares = settings.shares(found.sizes.sum())
    edges = split_edges(found.keys, found.sizes, validation_share=shares[0], test_share=shares[1])
    if tokenizer is None:
        from .huggingface import HuggingFaceTokenizer

        sample = training_sample(sources, found, edges)
        tokenizer = HuggingFaceTokenizer.train(sample, vocab_size=settings.vocab_size)
    lost_share = _lost_share(tokenizer, (part.text for part in read_parts(sources, found, edges)))
    encoded = encode(sources, found, edges, tokenizer, partial, say=say)
    for name, share in zip(SPLITS, (1.0, *shares), strict=True):
        if share > 0 and encoded.splits[name].tokens == 0:
            raise InputError(f"{sources.origin}: too little text to split, none is left for {name}; give more text")
    tokenizer.save(partial / TOKENIZER)
    manifest = describe(
        settings=_as_json(settings),
        sources=sources,
        infos=infos,
        found=found,
        edges=edges,
        tokenizer=tokenizer,
        encoded=encoded,
        lost_share=lost_share,
    )
    (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    for line in manifest_lines(manifest):
        say(line)


def _lost_share(tokenizer: Tokenizer, texts: Iterator[str]) -> float:
    """Of the first characters, how many fewer come back from the tokenizer: some drop what they do not know."""
    read = returned = 0
    for text in texts:
        read += len(text)
        returned += len(tokenizer.decode(tokenizer.encode(text)))
        if read >= _PROBE_CHARACTERS:
            break
    return max(0.0, 1 - returned / read)
