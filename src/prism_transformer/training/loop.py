"""One run: a model trained by a recipe, evaluated on the way, saved so that it can go on where it was."""

import errno
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..data import prepare
from ..data.batches import train_windows
from ..data.corpus import Corpus
from ..errors import DivergedError, RunError, Stopped
from ..evaluation.loss import document_losses, text_loss, token_losses
from ..files import write_json
from ..kernels.linear_cross_entropy import linear_cross_entropy
from ..model.modeling_prism import PrismForCausalLM
from .device import Device, choose_device, torch_settings_kept
from .metrics import Metrics, Stopwatch, tokens_per_second
from .optimizer import learning_rate, make_optimizer, set_learning_rate
from .recipe import Recipe
from .state import Position, RunFolder, restore_optimizer
from .text import check_data, data_sentences

Record = dict[str, Any]


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    corpus: Corpus | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
    say: Callable[[str], None] = print,
) -> Record:
    """Train by `recipe` into the folder `out`, or go on with the same run there, and return its final record.

    Args:
        recipe: every setting of the run.
        out: the run folder.
        corpus: the prepared text; by default it is prepared from recipe.data into the run folder's data/.
        on_record: called with each line of metrics.jsonl as it is written.
        say: called with sentences for the user.

    Raises:
        InputError: settings, data or folder do not fit.
        RunError: the loss is not finite, or a disk is full.
        Stopped: SIGINT or SIGTERM; the state is saved.
    """
    recipe.check()
    run = RunFolder(Path(out))
    with torch_settings_kept(), run.locked(), full_disk_is_run_error(run):
        device = choose_device(recipe.device)
        if corpus is None:
            corpus = prepare(recipe.data, run.data, say=say)
        check_data(recipe, corpus)
        run.accept(recipe, corpus.fingerprint)
        finished = run.final_record()
        if finished:
            loss, tokens = finished["val_loss"], finished["tokens"]
            say(f"{run.path} is finished: validation loss {loss:.4f} after {tokens:,} tokens")
            return finished
        for sentence in (*device.sentences, *data_sentences(recipe, corpus)):
            say(sentence)
        return Session(recipe, run, corpus, device, on_record, say).run()


class Session:
    """The parts of a run while it is trained: model, optimizer, position and metrics."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        corpus: Corpus,
        device: Device,
        on_record: Callable[[Record], None],
        say: Callable[[str], None],
    ) -> None:
        self.recipe, self.folder, self.corpus, self.device = recipe, run, corpus, device
        self.train_stream, self.validation_stream = corpus.split("train"), corpus.split("validation")
        self._on_record, self._say = on_record, say
        checkpoint = run.latest()
        if checkpoint is None:
            self.model, position = new_model(recipe, corpus), Position()
        else:
            self.model, tensors, position = run.load(checkpoint, data=corpus.fingerprint)
            say(f"going on from {checkpoint}")
        nn.Module.to(self.model, device.device)
        if device.device.type == "cpu":  # where it was measured to be faster
            self.model.loss_function_of_hidden = linear_cross_entropy
        self.optimizer = make_optimizer(self.model, recipe.optimizer)
        if checkpoint is not None:
            restore_optimizer(self.model, self.optimizer, tensors)
        self.step = self.saved_step = position.step
        self.metrics = Metrics(run.metrics, resumed_step=position.step)
        self.stopwatch = Stopwatch(position.seconds)
        self.saved_seconds = position.seconds
        self.window = Window(position)

    def run(self) -> Record:
        self.model.train()
        if self.recipe.device.compile:
            compile_layers(self.model)
        try:
            with stop_signals() as stopping:
                while self.step < self.recipe.steps:
                    self.train_step(stopping)
                    self.log()
                    self.evaluate_on_the_way()
                    self.save_when_due()
                finished = self.finish()
                if stopping:  # noted in the last evaluation: whoever trains many runs must not begin the next one
                    self.stop(stopping[0])
                return finished
        finally:
            self.metrics.close()

    def train_step(self, stopping: list[int]) -> None:
        """One optimizer step over the global batch, its gradient averaged over all of its tokens."""
        recipe = self.recipe
        batch = train_windows(
            self.train_stream,
            context=recipe.model.context,
            batch_size=recipe.batch_sequences,
            seed=recipe.training.seed,
            step=self.step,
        )
        ids = torch.from_numpy(batch).to(self.device.device, non_blocking=True)
        total = torch.zeros((), device=self.device.device)
        for micro in ids.split(recipe.training.micro_batch):
            if stopping:
                self.stop(stopping[0])
            with self.device.autocast():
                loss = self.model(
                    micro[:, :-1],
                    shift_labels=micro[:, 1:],
                    num_items_in_batch=recipe.training.tokens_per_step,
                    use_cache=False,
                ).loss
            loss.backward()
            total += loss.detach()
        clip = recipe.optimizer.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip).item()
        loss = total.item()
        self.require_finite("loss", loss, step=self.step + 1)
        self.require_finite("norm of the gradient", norm, step=self.step + 1)
        lr = learning_rate(self.step, recipe.steps, recipe.optimizer)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.window.add(loss, lr, norm)

    def require_finite(self, name: str, value: float, *, step: int) -> None:
        if not math.isfinite(value):
            raise self.diverged(f"the {name} is {value}", step)

    def diverged(self, what: str, step: int) -> DivergedError:
        """Note it in the metrics, and return the error that ends the run before the state is touched."""
        lr = learning_rate(step - 1, self.recipe.steps, self.recipe.optimizer)
        self.write({"diverged": True, "lr": lr}, step=step)
        return DivergedError(
            f"{what} at step {step} of seed {self.recipe.training.seed}, with learning rate {lr:.3g}: the run has "
            f"diverged. Last good state: {self.folder.latest() or 'none was saved yet'}. Lower lr, or lengthen warmup"
        )

    def log(self) -> None:
        if self.step % self.recipe.training.log_every == 0 or self.step in (1, self.recipe.steps):
            self.write(self.window.record(self.recipe.training.tokens_per_step, self.stopwatch.seconds))

    def evaluate_on_the_way(self) -> None:
        training, steps = self.recipe.training, self.recipe.steps
        due = self.step * training.evaluations // steps > (self.step - 1) * training.evaluations // steps
        if due and self.step < steps:
            self.evaluate(max_tokens=training.evaluation_tokens)

    def evaluate(self, *, max_tokens: int | None, final: bool = False) -> Record:
        """Measure the loss on the validation split, while the clock of training stands."""
        with self.stopwatch.paused():
            losses = token_losses(
                self.model,
                self.validation_stream,
                context=self.recipe.model.context,
                batch_size=self.recipe.training.micro_batch,
                max_tokens=max_tokens,
                autocast=self.device.autocast(),
            )
            found = text_loss(losses, self.validation_stream)
            self.require_finite("validation loss", found.nats_per_token, step=self.step)
            record: Record = {"val_loss": found.nats_per_token, "val_tokens": found.tokens}
            if found.bits_per_byte is not None:
                record["val_bits_per_byte"] = found.bits_per_byte
            if final:
                documents = document_losses(losses, self.validation_stream)
                nats, tokens = documents.nats.tolist(), documents.tokens.tolist()
                write_json(self.folder.documents, {"nats": nats, "tokens": tokens})
            return self.write(record | ({"final": True} if final else {}))

    def save_when_due(self) -> None:
        if self.stopwatch.seconds - self.saved_seconds >= 60 * self.recipe.training.save_minutes:
            try:
                self.save()
            except DivergedError:
                raise
            except RunError as error:
                self._say(f"warning: {error}; training goes on")
                self.saved_seconds = self.stopwatch.seconds

    def save(self) -> None:
        with self.stopwatch.paused():
            seconds, window = self.stopwatch.seconds, self.window
            position = Position(self.step, seconds, tuple(window.losses), window.seconds)
            keep = self.recipe.training.keep
            self.metrics.sync()
            try:
                self.folder.save(self.model, self.optimizer, position, data=self.corpus.fingerprint, keep=keep)
            except DivergedError:
                raise self.diverged("an answer of the model is not finite", self.step) from None
            self.saved_step, self.saved_seconds = self.step, seconds

    def finish(self) -> Record:
        """Save before the last evaluation is recorded: a run that says it is finished has its weights."""
        if self.saved_step != self.step:
            self.save()
        return self.evaluate(max_tokens=None, final=True)

    def stop(self, signal_number: int) -> None:
        """Save the state after the last whole step and end the run."""
        if self.saved_step != self.step:
            self.save()
        exit_code = 130 if signal_number == signal.SIGINT else 75
        raise Stopped(f"stopped at step {self.step} of {self.recipe.steps}, saved; the same command goes on", exit_code)

    def write(self, record: Mapping[str, Any], *, step: int | None = None) -> Record:
        step = self.step if step is None else step
        tokens = step * self.recipe.training.tokens_per_step
        whole = {"step": step, "tokens": tokens, "seconds": self.stopwatch.seconds, **record}
        self.metrics.write(whole)
        self._on_record(whole)
        return whole


class Window:
    """What happened since the last line of metrics."""

    def __init__(self, position: Position) -> None:
        self.seconds = position.logged_seconds
        self.losses = list(position.losses)
        self.lr = self.norm = 0.0

    def add(self, loss: float, lr: float, norm: float) -> None:
        self.losses.append(loss)
        self.lr, self.norm = lr, norm

    def record(self, tokens_per_step: int, seconds: float) -> Record:
        speed = tokens_per_second(len(self.losses) * tokens_per_step, seconds - self.seconds)
        record = {
            "loss": sum(self.losses) / len(self.losses),
            "lr": self.lr,
            "grad_norm": self.norm,
            "tokens_per_second": speed,
        }
        self.seconds, self.losses = seconds, []
        return record


def new_model(recipe: Recipe, corpus: Corpus) -> PrismForCausalLM:
    """The model before its first step: the same tensors for every schedule of one seed."""
    training = recipe.training
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers go on as if nothing had been drawn
        torch.manual_seed(training.seed if training.init_seed is None else training.init_seed)
        return PrismForCausalLM(recipe.model.config(corpus.vocab_size, corpus.tokenizer.end_of_text))


def compile_layers(model: PrismForCausalLM) -> None:
    """Compile in place, so that keys keep their names; one graph for each distinct head count."""
    distinct = len(set(model.config.head_schedule.heads))
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 4 * distinct)
    for layer in model.model.layers:
        layer.compile()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted in the list that this yields; a second one ends the process at once."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if noted:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        noted.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def full_disk_is_run_error(run: RunFolder) -> Iterator[None]:
    """Outside of checkpoints, whose failure is told by itself, a full disk ends the run with a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(
            f"{run.path}: no space left on the disk. Last good state: {run.latest() or 'none was saved yet'}. "
            "Free some space; the same command goes on"
        ) from None
