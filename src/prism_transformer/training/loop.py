"""One run: a model trained by a recipe, evaluated on the way, saved so that it can go on where it was.

torchrun may start it in several processes, the ranks. Each trains on its slice of every batch; only rank 0 writes.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ..data.corpus import Corpus
from ..errors import RunError, is_full_disk
from .build import shared_corpus
from .device import Device, choose_device, torch_settings_kept
from .origin import Origin
from .recipe import DeviceSettings, Recipe
from .run_lock import locked
from .session import Record, Say, Session
from .state import RunFolder
from .text import check_data, data_sentences
from .world import World, joined, lost_ranks_are_run_errors

LOCK_SECONDS = 30.0
"""How long a restarted process waits for the one before it to end."""


def silent(_: object) -> None:
    """What all ranks but the first say."""


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    corpus: Corpus | None = None,
    on_record: Callable[[Record], None] = silent,
    say: Say = print,
    allow: Collection[str] = (),
) -> Record:
    """Train by `recipe` into the folder `out`, or go on with the same run there, and return its final record.

    Args:
        recipe: every setting of the run.
        out: the run folder.
        corpus: the prepared text; by default it is prepared from recipe.data into the run folder's data/.
        on_record: called with each line of metrics.jsonl as it is written.
        say: called with sentences for the user.
        allow: kinds of difference to accept between the run in `out` and this recipe and text (see origin.py).

    Under torchrun every process calls this with the same arguments; only rank 0 writes and tells.

    Raises:
        InputError: settings, data or folder do not fit.
        RunError: the loss is not finite, a disk is full, or another process of the run has ended.
        Stopped: SIGINT, SIGTERM or SIGHUP; the state is saved.
    """
    recipe.check()
    with torch_settings_kept(), joined(recipe.device.device) as world, lost_ranks_are_run_errors(world):
        if not world.is_main:
            say, on_record = silent, silent
        world.together(lambda: recipe.check(world.size))  # together: who leaves early breaks the others' connections
        with opened(RunFolder(Path(out)), world, say) as run:
            device = own_device(recipe.device, world)
            corpus = corpus or shared_corpus(recipe, run.data, world, say)
            finished = world.on_main(partial(begin_or_recognise, run, recipe, corpus, allow))
            if finished:
                loss, tokens = finished["val_loss"], finished["tokens"]
                say(f"{run.path} is finished: validation loss {loss:.4f} after {tokens:,} tokens")
                return finished
            if world.is_main:  # other programs' shards are read whole for it
                for sentence in (*device.sentences, *data_sentences(recipe, corpus)):
                    say(sentence)
            return Session(recipe, run, corpus, device, on_record, say, world=world, allow=allow).run()


def own_device(settings: DeviceSettings, world: World) -> Device:
    """The device of this rank. Raises on every rank the InputError of one, which rank 0 tells for all."""
    found: list[Device] = []
    local_rank = world.local_rank if world.size > 1 else None
    world.together(lambda: found.append(choose_device(settings, local_rank=local_rank)))
    return found[0]


@contextmanager
def opened(run: RunFolder, world: World, say: Say) -> Iterator[RunFolder]:
    """The run folder, held by rank 0 for all."""
    wait = LOCK_SECONDS if world.launched else 0.0
    with ExitStack() as held:
        world.on_main(lambda: held.enter_context(locked(run.path, wait=wait, say=say)))
        with full_disk_is_run_error(run):
            yield run


def begin_or_recognise(run: RunFolder, recipe: Recipe, corpus: Corpus, allow: Collection[str]) -> Record | None:
    """Check that a run in the folder is this one, or record a new one; returns the last record of a finished one."""
    check_data(recipe, corpus)
    origin = Origin.of(recipe, corpus)
    if not run.changes(origin, allow=allow):  # changes are recorded once the checkpoint is known to fit: build.py
        run.accept(origin)
    final = run.final_record()
    return final if final and final["step"] == recipe.steps else None


@contextmanager
def full_disk_is_run_error(run: RunFolder) -> Iterator[None]:
    """Outside of checkpoints, whose failure is told by itself, a full disk ends the run with a sentence."""
    try:
        yield
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise RunError(
            f"{run.path}: no space left on the disk. Last good state: {run.latest() or 'none was saved yet'}. "
            "Free some space; the same command goes on"
        ) from None
