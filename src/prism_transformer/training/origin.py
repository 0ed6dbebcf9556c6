"""What a run is of, its recipe and its text: it goes on only where both are as they were.

A difference is refused with both values. The user can accept one of these kinds of it, by `--allow KIND`:

    horizon    training.tokens, on which the learning rate of each step depends
    recipe     any other setting but those of the model
    schedule   the heads per layer: the weights go on under another schedule
    data       the text, of the same tokenizer
    golden     the golden logits: this machine computes something else from the same files
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..data import Corpus
from ..errors import InputError
from ..settings import differences, from_mapping, to_mapping
from .recipe import Recipe

Allowed = Literal["horizon", "recipe", "schedule", "data", "golden"]


@dataclass(frozen=True)
class Origin:
    """The recipe and the text of a run."""

    recipe: Recipe
    data_fingerprint: str
    tokenizer: str = ""
    """Its name and the start of its fingerprint."""
    shards: Mapping[str, str] = field(default_factory=dict)
    """The name of each file of tokens, and a hash of its size, header and end."""

    @classmethod
    def of(cls, recipe: Recipe, corpus: Corpus) -> "Origin":
        return cls(recipe, corpus.fingerprint, corpus.tokenizer_name, corpus.shard_hashes)

    def text(self) -> dict[str, Any]:
        """What a file says of the text."""
        return {name: value for name, value in asdict(self).items() if name != "recipe"}

    def accepted_changes(self, found: Mapping[str, Any], *, where: str, allow: Collection[str]) -> list[str]:
        """What differs from `found` (a recipe, and what `text` returns) by the kinds in `allow`, in words.

        Raises InputError naming every other difference, both values, and how to go on with it.
        """
        changes = self._changes(found)
        refused = {kind: lines for kind, lines in changes.items() if kind not in allow}
        if not refused:
            return [line for lines in changes.values() for line in lines]
        lines = [line for kind in refused for line in refused[kind]]
        kinds = [kind for kind in refused if kind in Allowed.__args__]  # type: ignore[attr-defined]
        if len(kinds) == len(refused):
            lines.append(f"to go on with it all the same, add --allow {' '.join(kinds)}")
        else:
            lines.append("a run keeps its model and its tokenizer")
        raise InputError("\n  ".join([f"{where} holds a run with other settings; use another folder:", *lines]))

    def _changes(self, found: Mapping[str, Any]) -> dict[str, list[str]]:
        old = to_mapping(from_mapping(Recipe, found["recipe"], where="recipe"))
        new = to_mapping(self.recipe)
        changes: dict[str, list[str]] = {}
        same_text = found.get("data_fingerprint", self.data_fingerprint) == self.data_fingerprint
        if same_text:
            del old["data"], new["data"]  # what counts is what was read, not where it lay
        for line in differences(old, new):
            changes.setdefault(_kind(line), []).append(line)
        if not same_text:
            changes.setdefault("data", []).append(
                f"data.fingerprint: {found['data_fingerprint']} -> {self.data_fingerprint}"
            )
            changes["data"] += [f"shard {line}" for line in _shard_changes(found.get("shards", {}), self.shards)]
        if _fingerprint(found.get("tokenizer", self.tokenizer)) != _fingerprint(self.tokenizer):
            changes["tokenizer"] = [f"tokenizer: {found['tokenizer']} -> {self.tokenizer}"]
        return changes


def _fingerprint(tokenizer: str) -> str:
    """Of "bpe (1a2b…)": the name is that of its folder, which may be renamed."""
    return tokenizer.rpartition(" ")[2]


def _kind(line: str) -> str:
    """The kind of difference that a line like "training.tokens: 1 -> 2" tells."""
    name = line.partition(":")[0]
    special = {"training.tokens": "horizon", "model.schedule": "schedule"}
    section = name.partition(".")[0]
    return special.get(name) or {"model": "model", "data": "data"}.get(section, "recipe")


def _shard_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    lines = [f"{name} is another one" for name in old if name in new and old[name] != new[name]]
    lines += [f"{name} is missing" for name in old if name not in new]
    lines += [f"{name} is new" for name in new if old and name not in old]
    return lines[:8]
