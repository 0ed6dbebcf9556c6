"""A trained model with all that scoring needs: its tokenizer, its context, and what it saw before each text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ..checkpoint import CHECKPOINTS, IDENTITY, latest_checkpoint, load_model, quiet_transformers
from ..data import Corpus, Tokenizer, is_prepared, load_tokenizer
from ..errors import InputError
from ..files import DATA, RECIPE, STUDY, read_json
from ..model.configuration_prism import PrismConfig
from ..model.modeling_prism import PrismForCausalLM
from ..settings import read_yaml

GRAPH = "model.onnx"
"""In a folder that was exported for onnxruntime, in the place of weights."""


@dataclass(frozen=True)
class Start:
    """What stands before a text: the BOS policy, which must be that of training."""

    id: int
    """The token from which the first token of a text is predicted."""
    always: bool
    """Whether it stands before every text, or only where a text has nothing before it."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in evaluation mode, on the device and in the type that it was asked for."""

    path: Path
    """As the user gave it."""
    arm: str
    """The arm of a study's run, and the step where it is a checkpoint of one; the path of any other."""
    seed: int | None
    model: PreTrainedModel
    tokenizer: Tokenizer
    start: Start
    run: Path | None
    """The run folder, where it is a run or a checkpoint of one."""
    corpus: Corpus | None
    """The text that it was trained on, where it is here."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Head schedule, fingerprint, step and data fingerprint of a verified model; empty for a foreign one."""

    @property
    def context(self) -> int:
        """Tokens that the model was trained to see."""
        return int(self.model.config.max_position_embeddings)

    @property
    def step(self) -> int | None:
        return self.identity.get("step")

    @property
    def name(self) -> str:
        return _name(self.arm, self.seed)

    def describe(self) -> dict[str, Any]:
        """What a result says of the model that it is about."""
        return {
            "path": str(self.path),
            "arm": self.arm,
            "seed": self.seed,
            "step": self.step,
            "head_schedule": self.identity.get("head_schedule"),
            "fingerprint": self.identity.get("fingerprint"),
            "data_fingerprint": self.identity.get("data_fingerprint"),
            "sha256": self.identity.get("sha256", {}).get("model.safetensors"),
            "parameters": self.model.num_parameters(),
            "context": self.context,
            "tokenizer": self.tokenizer.name,
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
            "bos": self.start.sentence,
        }


def load(
    path: Path | str,
    *,
    tokenizer: str | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> LoadedModel:
    """Load a run folder (its newest checkpoint), a checkpoint, an exported folder or any Hugging Face folder.

    What this package saved is verified (schedule, checksums, golden logits), then moved to `device` and cast to `dtype`
    (None: the type of its weights). `tokenizer` (as for `load_tokenizer`) is for a folder without one.
    Raises InputError for what is none of these, is damaged, or has lost its tokenizer.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give a run, a checkpoint, or the folder of a Hugging Face model")
    run, folder = _run_and_weights(path)
    if run is None and not (folder / "config.json").is_file():
        raise InputError(f"{path} is no run, no checkpoint and no Hugging Face model: it has no config.json")
    if (folder / IDENTITY).is_file() and (folder / GRAPH).is_file():
        raise InputError(f"{path} holds a graph for onnxruntime and no weights; give the run that was exported to it")
    with quiet_transformers():
        if (folder / IDENTITY).is_file():
            model: PreTrainedModel = load_model(folder)
            identity = read_json(folder / IDENTITY)
        else:
            model, identity = _load_foreign(folder), {}
    model.train(False)
    corpus = _corpus_of(run) if run else None
    if corpus is not None and corpus.fingerprint != identity.get("data_fingerprint"):
        raise InputError(f"{corpus.folder} is not the text that {folder} was trained on; restore it")
    found = corpus.tokenizer if corpus else _tokenizer_of(folder, tokenizer, in_run=run is not None)
    trained_here = isinstance(model, PrismForCausalLM) and "imported_from" not in identity
    _check_tokenizer(folder, model, found, identity, trained_here=trained_here)
    arm, seed = _arm_and_seed(path, run)
    start = _start_of(folder, model, found, trained_here=trained_here)
    nn.Module.to(model, device=device, dtype=dtype)
    return LoadedModel(
        path=path,
        arm=arm,
        seed=seed,
        model=model,
        tokenizer=found,
        start=start,
        run=run,
        corpus=corpus,
        identity=identity,
    )


def name_of(path: Path) -> str:
    """What `load(path).name` is, without loading anything. Raises InputError for a run without a checkpoint."""
    path = path.expanduser()
    return _name(*_arm_and_seed(path, _run_and_weights(path)[0]))


def _name(arm: str, seed: int | None) -> str:
    return arm if seed is None else f"{arm} seed {seed}"


def _run_and_weights(path: Path) -> tuple[Path | None, Path]:
    """The run folder, where there is one, and the folder of the weights."""
    if (path / RECIPE).is_file():
        newest = latest_checkpoint(path)
        if newest is None:
            raise InputError(f"{path}: the run has no checkpoint yet; let it go on until it has saved one")
        return path, newest
    if path.resolve().parent.name == CHECKPOINTS and (path.resolve().parents[1] / RECIPE).is_file():
        return path.resolve().parents[1], path
    return None, path


def _load_foreign(folder: Path) -> PreTrainedModel:
    """A folder without our identity file: one of our models that somebody saved, or another architecture."""
    is_ours = read_json(folder / "config.json").get("model_type") == PrismConfig.model_type
    kind = PrismForCausalLM if is_ours else AutoModelForCausalLM
    remote: dict[str, Any] = {} if is_ours else {"trust_remote_code": False}
    try:
        model: PreTrainedModel = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True, **remote)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{folder}: transformers cannot load it as a causal language model: {reason}") from None
    if not isinstance(getattr(model.config, "max_position_embeddings", None), int):
        raise InputError(
            f"{folder}: its config.json states no max_position_embeddings, so nobody knows how many tokens the model "
            "sees; add it"
        )
    return model


def _corpus_of(run: Path) -> Corpus | None:
    """The text of a run: prepared for it alone, or named as prepared in its recipe, or that of its study."""
    recipe = read_yaml(run / RECIPE)
    stated = (recipe.get("data") or {}).get("tokenizer")
    places = [run / DATA]
    paths = (recipe.get("data") or {}).get("paths") or []
    if len(paths) == 1:
        places.append(Path(paths[0]).expanduser())
    for study in list(run.resolve().parents)[1:4]:
        if (study / STUDY).is_file():
            places.append(study / read_yaml(study / STUDY).get("data", DATA))
    prepared = next((place for place in places if is_prepared(place)), None)
    return Corpus.open(prepared, tokenizer=stated) if prepared else None


def _tokenizer_of(folder: Path, asked: str | None, *, in_run: bool) -> Tokenizer:
    if asked is not None:
        return load_tokenizer(asked)
    try:
        return load_tokenizer(folder)
    except InputError as error:
        why = "the text of its run is not here, which holds the tokenizer" if in_run else error.problems[0]
        raise InputError(f"{folder}: no tokenizer ({why}); name it with --tokenizer") from None


def _check_tokenizer(
    folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, identity: Mapping[str, Any], *, trained_here: bool
) -> None:
    """A tokenizer with more ids than the model is another model's; a trained one fits exactly."""
    size = getattr(model.config, "true_vocab_size", None) or model.config.vocab_size
    not_its_own = "it is not the one that the model was trained with"
    if tokenizer.vocab_size > size or (trained_here and tokenizer.vocab_size != size):
        raise InputError(
            f"{folder}: the model has {size:,} ids, but the tokenizer {tokenizer.name} has {tokenizer.vocab_size:,}: "
            f"{not_its_own}"
        )
    stated = identity.get("tokenizer_fingerprint", tokenizer.fingerprint)
    if stated != tokenizer.fingerprint:
        raise InputError(f"{folder}: the tokenizer {tokenizer.name} encodes otherwise than the model's: {not_its_own}")


def _arm_and_seed(path: Path, run: Path | None) -> tuple[str, int | None]:
    """Of a study's run from its place, STUDY/runs/ARM/seed-K; of another run the seed of its recipe.

    A checkpoint that is named itself is not its run: checkpoints of one run are to be compared with each other, and
    those of one step across seeds.
    """
    if run is None:
        return str(path), None
    parts = run.resolve().parts
    found = re.fullmatch(r"seed-(\d+)", parts[-1])
    if found and "runs" in parts[:-2] and any((p / STUDY).is_file() for p in list(run.resolve().parents)[1:4]):
        place = len(parts) - 1 - parts[::-1].index("runs")
        arm, given = "/".join(parts[place + 1 : -1]), path.resolve()
        return arm if given == run.resolve() else f"{arm} {given.name}", int(found[1])
    return str(path), (read_yaml(run / RECIPE).get("training") or {}).get("seed", 0)


def _start_of(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, *, trained_here: bool) -> Start:
    """Models trained here saw end-of-text before each document; others what their tokenizer adds."""
    if trained_here:
        stated = model.config.bos_token_id
        if stated is not None and stated != tokenizer.end_of_text:
            raise InputError(
                f"{folder}: trained with token {stated} before each text, but the tokenizer {tokenizer.name} has "
                f"{tokenizer.end_of_text} there: it is not the one that the model was trained with"
            )
        return Start(tokenizer.end_of_text, True, "end-of-text before each text, as in training")
    try:
        auto = AutoTokenizer.from_pretrained(folder, config=model.config, local_files_only=True)
        bos, added = auto.bos_token_id, auto("a").input_ids
    except Exception:  # transformers raises anything here; a folder without its files adds nothing
        bos, added = None, []
    if bos is not None and added[:1] == [bos]:
        return Start(bos, True, "BOS before each text, as the tokenizer adds it")
    start = bos if bos is not None else tokenizer.end_of_text
    return Start(start, False, f"none, as the tokenizer adds none; token {start} where nothing stands before a text")
