"""`attention_distance`: how far each layer of a trained model looks back, kept beside it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..data import TokenStream
from ..errors import InputError
from ..files import read_json, write_json
from .loading import LoadedModel, load
from .measured_attention import Documents, measure_attention
from .scores import place_of, refuse_another
from .text import read_text

MEASURES = ("distance", "distance_beyond_sink", "sink_share", "entropy")


def attention_distance(
    run: Path | str,
    *,
    text: Sequence[str] = (),
    sequences: int = 8,
    context: int | None = None,
    documents: Documents = "packed",
    tokenizer: str | None = None,
    out: Path | str | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Equation 1 of the paper (section 5) for a run, checkpoint or Hugging Face folder: {"model", "layers": […], …}.

    Args:
        run: what `loading.load` takes.
        text: files, folders, globs; default: the validation split that the run was trained with.
        sequences: windows to measure, spread over the text.
        context: tokens of a window; default: the context of training.
        documents: "packed" as in training, or "apart": a token sees its own document only.
        tokenizer: for a folder without one.
        out: where the result is kept; by default in the run, else in ./evaluations.
        device: where it is computed, in fp32.

    Each layer has by head `distance` (tokens), `distance_beyond_sink` (tokens, without position 0), `sink_share` (the
    share of position 0) and `entropy` (nats), and their `mean`, of which the distance is the paper's D_l.
    Raises InputError for no such model, text or context, DivergedError for attention that is not finite.
    """
    loaded = load(run, tokenizer=tokenizer, device=device)
    folder = place_of(loaded, Path(out) if out else None)
    return kept_attention(
        loaded, folder, text=text, sequences=sequences, context=context or loaded.context, documents=documents
    )


def kept_attention(
    loaded: LoadedModel,
    folder: Path,
    *,
    text: Sequence[str] = (),
    sequences: int,
    context: int,
    documents: Documents,
    text_field: str = "text",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure, and keep the result in `folder`; what was kept there with the same settings is returned as it is."""
    stream, name = _stream(loaded, text, text_field)
    settings = {
        "model": loaded.describe(),
        "text": {"origin": stream.where if text else "validation split of training", "sha256": name},
        "sequences": sequences,
        "context": context,
        "documents": documents,
    }
    path = folder / f"attention-{documents}-{context}-{sequences}{f'-{name[:8]}' if text else ''}.json"
    if path.exists():
        kept = read_json(path)
        if kept.get("settings") == json.loads(json.dumps(settings)):
            return kept | {"kept": str(path)}
    refuse_another(path)
    measured = measure_attention(
        loaded.model, stream, context=context, sequences=sequences, documents=documents, on_progress=on_progress
    )
    layers = [
        {"heads": len(layer.distance), "mean": {each: layer.mean(each) for each in MEASURES}, **asdict(layer)}
        for layer in measured.layers
    ]
    found = {
        "model": loaded.describe(),
        "settings": settings,
        "sequences": measured.sequences,
        "queries": measured.queries,
        "layers": layers,
    }
    write_json(path, found)
    return read_json(path) | {"kept": str(path)}


def _stream(loaded: LoadedModel, text: Sequence[str], text_field: str) -> tuple[TokenStream, str]:
    """The text to measure on, and its hash."""
    if text:
        stream = read_text(text, loaded.tokenizer, text_field=text_field)
        digest = hashlib.sha256(b"".join(part.tobytes() for part in stream.parts))
        return stream, digest.hexdigest()
    if loaded.corpus is None:
        raise InputError(f"{loaded.path}: the text that it was trained on is not here; give text with --text")
    return loaded.corpus.split("validation"), loaded.corpus.fingerprint
