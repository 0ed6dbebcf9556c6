"""Make a RUN of a Llama-style folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint import GOLDEN_TOLERANCE, golden_ids, load_model, quiet_transformers, save_model
from ..errors import InputError
from .llama import convert, distance_to_source, open_llama, schedule_for
from .new_folder import new_folder
from .tokenizer_files import copy_tokenizer


@dataclass(frozen=True)
class Imported:
    """What an import made of its source."""

    model_type: str
    head_schedule: str
    source_schedule: str
    repeats: int
    """How often each key/value head was repeated; 1: they were not grouped."""
    parameters: int
    source_parameters: int
    tokenizer: str | None
    spare_rows: int
    """Rows of the embedding that the tokenizer has no id for."""
    distance: float | None
    """The largest difference of a logit to transformers' Llama; None under another schedule, where nothing is equal."""


def import_folder(source: Path, out: Path, *, schedule: str | None = None) -> Imported:
    """Write the Llama-style folder `source` as a model of this package into the new folder `out`.

    `schedule` is an ARM: under any other than the source's own the weights are an initialisation that needs training,
    and the identity says so. Raises InputError for what cannot be imported.
    """
    llama = open_llama(source)
    heads = schedule_for(llama, schedule)
    own = llama.head_schedule
    with new_folder(out) as folder, quiet_transformers():
        model = convert(llama, heads)
        origin: dict[str, Any] = {
            "imported_from": source.resolve().name,
            "source_head_schedule": str(own),
            "needs_training": heads != own,
        }
        save_model(model, folder, origin=origin)
        tokenizer = copy_tokenizer(source, folder, rows=model.config.vocab_size)
        distance = None
        if heads == own:
            distance = distance_to_source(load_model(folder), llama, golden_ids(model.config))
            if not distance <= GOLDEN_TOLERANCE:
                raise InputError(
                    f"{source}: the imported model does not answer as transformers' Llama does: logits differ by "
                    f"{distance:.3g} (tolerance {GOLDEN_TOLERANCE}); it is not imported"
                )
    return Imported(
        model_type=llama.config.model_type,
        head_schedule=str(heads),
        source_schedule=str(own),
        repeats=llama.repeats,
        parameters=model.num_parameters(),
        source_parameters=_source_parameters(model.num_parameters(), llama),
        tokenizer=tokenizer.name if tokenizer else None,
        spare_rows=model.config.vocab_size - tokenizer.vocab_size if tokenizer else 0,
        distance=distance,
    )


def _source_parameters(parameters: int, llama: Any) -> int:
    """Without the copies of the key and value heads."""
    config = llama.config
    width = config.hidden_size
    grouped = width * config.num_key_value_heads * config.head_dim
    return int(parameters - 2 * config.num_hidden_layers * (width * width - grouped))
