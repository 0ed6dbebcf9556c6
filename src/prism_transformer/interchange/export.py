"""Write a trained model for other tools."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint import GOLDEN_TOLERANCE, IDENTITY, quiet_transformers, save_model
from ..data import Tokenizer, load_tokenizer
from ..errors import InputError
from ..evaluation.loading import GRAPH, LoadedModel, load
from ..files import checksums, read_json, write_json
from ..model.head_schedule import HeadSchedule
from ..model.modeling_prism import PrismForCausalLM
from ..settings import nearest
from .fresh_process import load_hugging_face, load_onnx
from .model_card import model_card
from .new_folder import new_folder
from .tokenizer_files import PROBE, copy_tokenizer, write_tokenizer

TARGETS = ("hf", "onnx")


@dataclass(frozen=True)
class Exported:
    """What an export wrote, and how far its logits were from the model's when it was loaded again."""

    target: str
    head_schedule: str
    files: tuple[str, ...]
    distances: dict[str, float]


def export(run: Path | str, target: str, out: Path, *, tokenizer: str | None = None) -> Exported:
    """Write the model of `run` for other tools into the new folder `out`, and prove it by loading it again.

    Raises InputError for a target that cannot hold the head schedule, for a model that is not of this package, and
    where what was written does not load or answer as the model does.
    """
    _check_target(target)
    loaded = load(run, tokenizer=tokenizer)
    model = loaded.model
    if not isinstance(model, PrismForCausalLM):
        raise InputError(f"{run} is no model of this package, but {model.config.model_type}: it needs no export")
    _check_schedule(target, model.config.head_schedule)
    with new_folder(out) as folder, quiet_transformers():
        ids = _write_model(loaded, model, folder)
        (folder / "README.md").write_text(model_card(loaded, out.resolve().name, target), encoding="utf-8")
        if target == "hf":
            distances = _checked_hugging_face(folder, out, model.config.head_schedule, ids)
        else:
            from .onnx_graph import write_onnx

            write_onnx(model, folder / GRAPH)
            distances = _within_tolerance(load_onnx(folder, out), out)
            _leave_the_graph(folder)
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return Exported(target, str(model.config.head_schedule), files, distances)


def _leave_the_graph(folder: Path) -> None:
    """Take out the weights and the network's code, which the graph stands for, and state the checksums of the rest.

    The code of the configuration stays: readers of a graph look up its sizes by AutoConfig.
    """
    for path in (*folder.glob("model*.safetensors*"), folder / "modeling_prism.py"):
        path.unlink()
    identity = read_json(folder / IDENTITY)
    named = {*(folder / name for name in identity["sha256"]), *folder.glob(f"{GRAPH}*")}
    there = sorted(path for path in named if path.is_file())
    write_json(folder / IDENTITY, identity | {"sha256": checksums(there)})


def _check_target(target: str) -> None:
    if target not in (*TARGETS, "gguf"):
        raise InputError(f"--to {target}: no such target; {nearest(target, TARGETS)}")
    if target == "onnx":
        require_onnx()


def require_onnx() -> None:
    """Raise InputError where the extra is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"--to onnx needs the extra [export] ({error}): pip install 'prism-transformer[export]'"
        ) from None


def _check_schedule(target: str, schedule: HeadSchedule) -> None:
    if target != "gguf":
        return
    dims = ", ".join(map(str, sorted(set(schedule.head_dims), reverse=True)))
    if schedule.is_uniform:
        raise InputError(
            "--to gguf is not written here: under a uniform schedule the model is exactly a Llama, so load its weights "
            "into transformers' LlamaForCausalLM, save that, and convert the folder with llama.cpp's own converter"
        )
    raise InputError(
        f"--to gguf: llama.cpp knows two head dims at most, one for layers of full attention and one for those of a "
        f"sliding window; this schedule, {schedule}, has full attention and the head dims {dims}; take hf or onnx"
    )


def _write_model(loaded: LoadedModel, model: PrismForCausalLM, folder: Path) -> list[int] | None:
    """Weights, code, identity, golden logits and tokenizer; the ids of the probe for the reader."""
    origin: dict[str, Any] = {key: value for key, value in loaded.identity.items() if key not in _OWN_KEYS}
    scratch = folder / "tokenizer"
    scratch.mkdir()
    tokenizer, ids = _write_tokenizer(loaded, scratch)
    weights = folder / "weights"
    save_model(model, weights, origin=origin | {"tokenizer_fingerprint": tokenizer.fingerprint})
    for path in (*scratch.iterdir(), *weights.iterdir()):
        path.rename(folder / path.name)
    scratch.rmdir()
    weights.rmdir()
    return ids


_OWN_KEYS = ("head_schedule", "d_model", "fingerprint", "sha256", "tokenizer_fingerprint")


def _write_tokenizer(loaded: LoadedModel, folder: Path) -> tuple[Tokenizer, list[int] | None]:
    """Write the tokenizer, of an imported model as it is; with the ids that AutoTokenizer must give for the probe."""
    if "imported_from" in loaded.identity and loaded.run is None:
        copied = copy_tokenizer(loaded.path, folder, rows=loaded.model.config.vocab_size)
        if copied is not None:
            return copied, None  # as its own tools have it: special tokens in a text are theirs to read
    write_tokenizer(loaded.tokenizer, folder, context=loaded.context)
    return load_tokenizer(folder), [loaded.tokenizer.end_of_text, *loaded.tokenizer.encode(PROBE)]


def _checked_hugging_face(
    folder: Path, out: Path, schedule: HeadSchedule, ids: Sequence[int] | None
) -> dict[str, float]:
    found: dict[str, Any] = load_hugging_face(folder, out, text=PROBE, ids=ids)
    _same_ids(ids, found.get("ids"), out)
    if tuple(found["heads"]) != schedule.heads:
        raise InputError(f"{out}: loaded with the heads {found['heads']}, but the schedule is {schedule}")
    return _within_tolerance({"logits": found["logits"]}, out)


def _same_ids(ids: Sequence[int] | None, found: Any, out: Path) -> None:
    if ids is not None and found != list(ids):
        raise InputError(f"{out}: AutoTokenizer reads the exported tokenizer, but encodes otherwise than the run's")


def _within_tolerance(distances: dict[str, Any], out: Path) -> dict[str, float]:
    for name, distance in distances.items():
        if not distance <= GOLDEN_TOLERANCE:
            raise InputError(
                f"{out}: loaded again, the model answers otherwise: {name} differ by {distance:.3g} (tolerance "
                f"{GOLDEN_TOLERANCE}); nothing was written"
            )
    return distances
