"""When a run saves, how much room that takes, and what it costs."""

from pathlib import Path

from ..cost import MOMENT_BYTES, WEIGHT_BYTES
from ..errors import RunError
from ..files import free_bytes, size_text
from .recipe import Recipe

DEFAULT_MINUTES = 10.0
_LARGEST_SHARE = 0.01
_OTHER_BYTES = 1 << 17  # configuration, code, state


class SaveClock:
    """Says when to save. All times are seconds of training, but for `spent`, the seconds that saving itself took."""

    def __init__(self, recipe: Recipe, *, seconds: float, spent: float) -> None:
        self._minutes, self._keep_every = recipe.training.save_minutes, recipe.training.keep_every
        self._since = seconds
        self._longest = 0.0
        self.spent = spent

    @property
    def interval(self) -> float:
        """Seconds between two saves: as asked, or ten minutes, and longer where saving would take over 1 % of it."""
        if self._minutes is not None:
            return 60 * self._minutes
        return max(60 * DEFAULT_MINUTES, self._longest / _LARGEST_SHARE)

    def due(self, step: int, seconds: float) -> bool:
        return seconds - self._since >= self.interval or bool(self._keep_every and step % self._keep_every == 0)

    def saved(self, seconds: float, took: float) -> None:
        self._since, self._longest, self.spent = seconds, max(self._longest, took), self.spent + took

    def failed(self, seconds: float) -> None:
        """To be tried again after a tenth of the interval."""
        self._since = seconds - 0.9 * self.interval


def checkpoint_bytes(recipe: Recipe, vocab_size: int) -> int:
    """What one checkpoint takes on the disk: fp32 weights and two moments, and the golden logits."""
    return (WEIGHT_BYTES + MOMENT_BYTES) * recipe.model.cost(vocab_size).parameters + 16 * 4 * vocab_size + _OTHER_BYTES


def kept_checkpoints(recipe: Recipe) -> int:
    """How many checkpoints of a run may lie on the disk at a time, the one that is being written included."""
    training = recipe.training
    return training.keep + 1 + (recipe.steps // training.keep_every if training.keep_every else 0)


def check_space(checkpoints: Path, recipe: Recipe, vocab_size: int) -> str | None:
    """A warning where the volume of `checkpoints` will not hold all that the recipe keeps, and one more on the way.

    Raises RunError where it does not hold a single one.
    """
    one = checkpoint_bytes(recipe, vocab_size)
    kept = kept_checkpoints(recipe)
    there = sum(file.stat().st_size for file in checkpoints.glob("step-*/*"))
    free = free_bytes(checkpoints)
    told = f"a checkpoint takes {size_text(one)}, and {size_text(free)} are free"
    if free < one:
        raise RunError(f"{checkpoints}: no space left on the disk: {told}; free some, or choose another folder")
    if free + there < kept * one:
        return (
            f"warning: {checkpoints}: {told}, but up to {kept} lie there at a time ({size_text(kept * one)}); "
            "free some, or lower keep"
        )
    return None
