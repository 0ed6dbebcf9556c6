"""A run while it is trained: a list of calls, each of which all ranks make.

Each rank trains on its slice of every batch; only rank 0 writes and tells.
"""

import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..data.batches import train_windows
from ..data.corpus import Corpus
from ..errors import DivergedError, RunError, Stopped
from ..evaluation.loss import document_losses, text_loss, token_losses
from ..files import write_json
from ..settings import from_mapping
from .build import Start, check_ranks_agree, compile_layers, compiles, make_ready, read_start
from .device import Device
from .fit import choose_way
from .metrics import Metrics, Stopwatch, Window
from .optimizer import learning_rate, make_optimizer, set_learning_rate
from .origin import Origin
from .parallel import ParallelModel, optimizer_tensors, restore_optimizer
from .recipe import Recipe
from .saving import SaveClock
from .signals import ECHO_SECONDS, stop_signals
from .state import Position, RunFolder
from .world import World

Record = dict[str, Any]
Say = Callable[[str], None]


class Session:
    """The parts of a run while it is trained: model, optimizer, position and metrics."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        corpus: Corpus,
        device: Device,
        on_record: Callable[[Record], None],
        say: Say,
        *,
        world: World | None = None,
        allow: Collection[str] = (),
        checkpoint: Path | None = None,
    ) -> None:
        """`checkpoint` is where to start, by default the newest of the run."""
        self.recipe, self.folder, self.corpus, self.device = recipe, run, corpus, device
        self.world = world or World()
        self.origin = Origin.of(recipe, corpus)
        self.train_stream, self.validation_stream = corpus.split("train"), corpus.split("validation")
        self._on_record, self._say = on_record, say
        self.stopping: list[int] = []
        self._ahead: dict[int, npt.NDArray[np.int64]] = {}
        position, changes = self._build(checkpoint, allow)
        self.step = self.saved_step = position.step
        self.metrics = Metrics(run.metrics, resumed_step=position.step) if self.world.is_main else None
        self.stopwatch = Stopwatch(position.seconds)
        self.save_clock = SaveClock(recipe, seconds=position.seconds, spent=position.save_seconds)
        self.window = Window(position.losses, position.logged_seconds, position.batches)
        if changes:
            self.write({"changed": changes})
        if self.world.size > 1:
            facts = {
                "text": self.origin.data_fingerprint,
                "first batch": self.window.see(self.batch(position.step))[:16],
            }
            check_ranks_agree(self.world, facts)

    def _build(self, checkpoint: Path | None, allow: Collection[str]) -> tuple[Position, list[str]]:
        """Make model and optimizer, new or as they were saved; returns where the run is and what has changed since."""
        start = Start()

        def read() -> Record:
            """On rank 0 alone."""
            nonlocal start
            found = checkpoint or self.folder.start(self._say)
            start = read_start(found, self.folder, self.origin, self.corpus, allow=allow, say=self._say)
            return {"position": asdict(start.position), "changes": start.changes, "parameters": start.parameters}

        told = self.world.on_main(read)
        position = from_mapping(Position, told["position"], where="position")
        asked, ranks = self.recipe.device.parallel, self.world.size
        way = choose_way(asked, told["parameters"], ranks=ranks, gpu_bytes=self.device.memory())
        self.parallel = ParallelModel(start.model, way, self.device, self.world)
        self.model = self.parallel.model
        make_ready(self.model, self.recipe.device, self.device)
        self.optimizer = make_optimizer(self.model, self.recipe.optimizer)
        if position.step:
            restore_optimizer(self.parallel, self.optimizer, start.optimizer)
        if sentence := self.parallel.sentence:
            self._say(sentence)
        return position, told["changes"]

    def run(self) -> Record:
        """Train to the end and return the final record."""
        with self._running():
            self._train_to(self.recipe.steps)
            finished = self.finish()
            self.heed_signals()  # whoever trains many runs must not begin the next one
            return finished

    def run_to(self, step: int) -> None:
        """Train up to `step` and save."""
        with self._running():
            self._train_to(step)
            if self.saved_step != self.step:
                self.save()

    @contextmanager
    def _running(self) -> Iterator[None]:
        self.model.train()
        if compiles(self.recipe.device, self.device):
            compile_layers(self.model, sharded=self.parallel.way == "fsdp")
        elif self.recipe.device.compile:
            self._say("layers are not compiled: torch.compile needs Triton on a GPU, and a C++ compiler on a CPU")
        try:
            with stop_signals(echo_seconds=ECHO_SECONDS if self.world.launched else 0.0) as self.stopping:
                yield
        finally:
            if self.metrics:
                self.metrics.close()

    def _train_to(self, step: int) -> None:
        self.evaluate_where_it_was_stopped()
        while self.step < step:
            self.train_step()
            self.log()
            self.evaluate_on_the_way()
            self.save_when_due()

    def batch(self, step: int) -> npt.NDArray[np.int64]:
        """[sequences, context + 1] the token ids of the step after `step`, of all ranks."""
        return train_windows(
            self.train_stream,
            context=self.recipe.model.context,
            batch_size=self.recipe.batch_sequences,
            seed=self.recipe.training.seed,
            step=step,
        )

    def train_step(self) -> None:
        """One optimizer step over the global batch, its gradient averaged over all of its tokens."""
        training, size = self.recipe.training, self.world.size
        batch = self._ahead.pop(self.step, None)
        batch = self.batch(self.step) if batch is None else batch
        share = len(batch) // size
        own = batch[self.world.rank * share :][:share]
        ids = self.device.send(own)
        total = torch.zeros((), device=self.device.device)
        micros = ids.split(training.micro_batch)
        for number, micro in enumerate(micros, start=1):
            self.heed_signals()
            with self.parallel.micro_step(last=number == len(micros)), self.device.autocast():
                loss = self.parallel.forward(
                    micro[:, :-1],
                    shift_labels=micro[:, 1:],
                    num_items_in_batch=training.tokens_per_step // size,
                    use_cache=False,
                ).loss
            loss.backward()
            total += loss.detach()
        norm_tensor, total = self.parallel.clip(self.recipe.optimizer.clip or math.inf), self.parallel.total(total)
        seen = self.window.see(batch)  # this and the next batch are made while a GPU still computes
        if self.step + 1 < self.recipe.steps:
            self._ahead = {self.step + 1: self.batch(self.step + 1)}
        norm, loss = norm_tensor.item(), total.item() / size
        self.require_finite("loss", loss, step=self.step + 1)
        self.require_finite("norm of the gradient", norm, step=self.step + 1)
        lr = learning_rate(self.step, self.recipe.steps, self.recipe.optimizer)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.window.add(loss, lr, norm, seen)

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

    def evaluation_due(self) -> bool:
        """Whether one of the evaluations on the way comes after this step."""
        evaluations, steps = self.recipe.training.evaluations, self.recipe.steps
        passed = self.step * evaluations // steps > (self.step - 1) * evaluations // steps
        return passed and 0 < self.step < steps

    def evaluate_on_the_way(self) -> None:
        if self.evaluation_due():
            self.evaluate(max_tokens=self.recipe.training.evaluation_tokens)

    def evaluate_where_it_was_stopped(self) -> None:
        """A run that was stopped in an evaluation has saved the step, and lacks the line."""
        lines = self.metrics.kept if self.metrics else []
        if self.world.on_main(lambda: not any("val_loss" in line and line["step"] == self.step for line in lines)):
            self.evaluate_on_the_way()

    def evaluate(self, *, max_tokens: int | None, final: bool = False) -> Record:
        """Measure the loss on the validation split, a part on each rank, while the clock of training stands."""
        with self.stopwatch.paused():
            losses = token_losses(
                self.model,
                self.validation_stream,
                context=self.recipe.model.context,
                batch_size=self.recipe.training.micro_batch,
                max_tokens=max_tokens,
                autocast=self.device.autocast(),
                ranks=self.world,
                before_batch=self.heed_signals,
            )
            found = text_loss(losses, self.validation_stream)
            self.require_finite("validation loss", found.nats_per_token, step=self.step)
            record: Record = {"val_loss": found.nats_per_token, "val_tokens": found.tokens}
            if found.bits_per_byte is not None:
                record["val_bits_per_byte"] = found.bits_per_byte
            if final and self.world.is_main:
                documents = document_losses(losses, self.validation_stream)
                nats, tokens = documents.nats.tolist(), documents.tokens.tolist()
                write_json(self.folder.documents, {"nats": nats, "tokens": tokens})
            return self.write(record | ({"final": True, "save_seconds": self.save_clock.spent} if final else {}))

    def save_when_due(self) -> None:
        if not self.world.largest(self.save_clock.due(self.step, self.stopwatch.seconds)):
            return
        try:
            self.save()
        except DivergedError:
            raise
        except RunError as error:
            self._say(f"warning: {error}; training goes on")
            self.save_clock.failed(self.stopwatch.seconds)

    def save(self) -> None:
        """Write a checkpoint; all ranks take part in gathering the model, and wait while rank 0 writes it."""
        with self.stopwatch.paused():
            began, window = time.perf_counter(), self.window
            position = Position(
                self.step,
                self.stopwatch.seconds,
                tuple(window.losses),
                window.seconds,
                window.batches,
                self.save_clock.spent,
            )
            whole, tensors = self.parallel.whole_model(), optimizer_tensors(self.parallel, self.optimizer)

            def write() -> None:
                assert self.metrics is not None and whole is not None
                self.metrics.sync()
                self.folder.save(whole, tensors, position, origin=self.origin, say=self._say)

            try:
                self.world.on_main(write)
            except DivergedError:
                raise self.diverged("an answer of the model is not finite", self.step) from None
            self.saved_step = self.step
            self.save_clock.saved(self.stopwatch.seconds, took=time.perf_counter() - began)

    def finish(self) -> Record:
        """Save before the last evaluation is recorded: a run that says it is finished has its weights."""
        if self.saved_step != self.step:
            self.save()
        return self.evaluate(max_tokens=None, final=True)

    def heed_signals(self) -> None:
        """Where any rank has got a signal, all of them save the state after the last whole step and end the run."""
        number = self.world.largest(self.stopping[0] if self.stopping else 0)
        if number:
            self.stop(number)

    def stop(self, signal_number: int) -> None:
        if self.saved_step != self.step:
            self.save()
        exit_code = 130 if signal_number == signal.SIGINT else 75
        state = "saved; the same command goes on" if self.step else "nothing to save; the same command starts again"
        raise Stopped(f"stopped at step {self.step} of {self.recipe.steps}, {state}", exit_code)

    def write(self, record: Mapping[str, Any], *, step: int | None = None) -> Record:
        step = self.step if step is None else step
        tokens = step * self.recipe.training.tokens_per_step
        whole = {"step": step, "tokens": tokens, "seconds": self.stopwatch.seconds, **record}
        if self.metrics:
            self.metrics.write(whole)
            self._on_record(whole)
        return whole
