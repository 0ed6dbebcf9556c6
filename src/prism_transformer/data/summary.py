"""What a preparation did: its manifest, and the lines that are printed of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..files import size_text
from ..wording import count
from .encode import Encoded, Survey
from .manifest import SPLITS, Counts, Manifest, SourceInfo
from .sources import Sources
from .tokenizer import Tokenizer

WARN_SHARE = 0.01
_MOST_FREQUENT = 20


def describe(
    *,
    settings: Mapping[str, Any],
    sources: Sources,
    infos: tuple[SourceInfo, ...],
    found: Survey,
    edges: npt.NDArray[np.int64],
    tokenizer: Tokenizer,
    encoded: Encoded,
    lost_share: float,
) -> Manifest:
    """The manifest of what was encoded."""
    total = int(encoded.id_counts.sum())
    unknown = 0 if tokenizer.unknown is None else int(encoded.id_counts[:, tokenizer.unknown].sum())
    kept = sum(split.tokens for split in encoded.splits.values())
    whole = (edges == 0) | (edges == found.sizes[:, None])
    counts = Counts(
        files=sources.files,
        files_hidden=sources.hidden,
        files_binary=sources.binary,
        documents=len(found.sizes),
        documents_empty=found.empty,
        documents_cut=int(np.sum(~whole.all(axis=1))),
        bytes_replaced=found.replaced,
        tokens_total=total,
        tokens_kept=kept,
        tokens_dropped=total - kept,
        tokens_unknown=unknown,
    )
    return Manifest(
        settings=dict(settings),
        sources=infos,
        origin=sources.origin,
        tokenizer=tokenizer_entry(tokenizer),
        splits=encoded.splits,
        counts=counts,
        most_frequent=most_frequent(tokenizer, encoded.id_counts[0]),
        lost_share=lost_share,
    )


def tokenizer_entry(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer, as the manifest names it."""
    return {
        "name": tokenizer.name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
    }


def most_frequent(tokenizer: Tokenizer, id_counts: npt.NDArray[np.int64]) -> tuple[dict[str, Any], ...]:
    """The most frequent ids, as the manifest lists them."""
    order = np.argsort(-id_counts, kind="stable")[:_MOST_FREQUENT]
    share = id_counts / max(1, int(id_counts.sum()))
    return tuple({"id": int(i), "text": tokenizer.decode([int(i)]), "share": float(share[i])} for i in order)


def survey_lines(sources: Sources, found: Survey) -> list[str]:
    """What was read and what was skipped."""
    skipped = {"empty document": found.empty, "hidden file": sources.hidden, "binary file": sources.binary}
    some = ", ".join(count(number, kind) for kind, number in skipped.items() if number)
    lines = [f"text: {size_text(found.sizes.sum())} in {count(len(found.sizes), 'document')}"]
    if some:
        lines.append(f"skipped: {some}")
    if found.replaced:
        lines.append(f"warning: {found.replaced:,} bytes are no UTF-8; each became U+FFFD")
    return lines


def manifest_lines(manifest: Manifest) -> list[str]:
    """What was made of it, and warnings."""
    counts, splits = manifest.counts, manifest.splits
    name, rows = manifest.tokenizer["name"], manifest.tokenizer["vocab_size"]
    text_bytes = sum(split.text_bytes for split in splits.values())
    unknown = counts.tokens_unknown / counts.tokens_total
    frequent = ", ".join(f"{each['text']!r} {each['share']:.1%}" for each in manifest.most_frequent[:3])
    lines = [
        f"tokenizer: {name}, {rows:,} ids, {text_bytes / counts.tokens_kept:.2f} bytes a token",
        "tokens: " + ", ".join(f"{splits[split].tokens:,} {split}" for split in SPLITS),
        f"        {counts.tokens_kept:,} kept, {counts.tokens_dropped:,} dropped, {unknown:.2%} unknown",
        f"        most frequent: {frequent}",
    ]
    if counts.documents_cut:
        lines.append(f"split: {count(counts.documents_cut, 'document')} too long for one split, so cut into parts")
    if manifest.settings.get("tokenizer") == "bpe" and rows < manifest.settings["vocab_size"]:
        lines.append(f"warning: so little text gives {rows:,} ids, not {manifest.settings['vocab_size']:,}")
    if unknown > WARN_SHARE:
        lines.append(f"warning: {unknown:.1%} of the tokens are unknown to the tokenizer {name}: is it the right one?")
    if manifest.lost_share > WARN_SHARE:
        lines.append(f"warning: the tokenizer {name} loses {manifest.lost_share:.1%} of the text: is it the right one?")
    return lines
