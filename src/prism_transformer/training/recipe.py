"""The recipe: every setting of a run, and the figures that follow from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..cost import Cost, TrainingMemory, default_intermediate_size, model_cost, training_memory
from ..data import DataSettings
from ..design.families import expand_arm
from ..errors import InputError
from ..model.head_schedule import HeadSchedule, ScheduleError, divisors

if TYPE_CHECKING:
    from ..model.configuration_prism import PrismConfig


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The network. What the paper does not state is marked as our reading."""

    layers: int = 12
    """Number of layers."""
    d_model: int = 768
    """Width of the model."""
    heads: int = 12
    """Base heads: the head count of the uniform schedule, and the largest of the prism family."""
    schedule: str = "uniform"
    """Heads per layer: uniform, uniform-N, prism, reversed, shuffled-K, linear, or heads x layers like 3x2,12x2."""
    context: int = 1024
    """Tokens of context in training."""
    ffn: int | None = None
    """Hidden width of SwiGLU; default floor(8 d_model / 3)."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """Norm before attention and SwiGLU (our reading: the paper does not name it)."""
    rope_theta: float = 10000.0
    """Base of the RoPE frequencies (our reading)."""
    rope_width: Literal["head", "base"] = "head"
    """Dimensions of a head that RoPE rotates: all, or as many as the base head dim."""
    attention_scale: Literal["head", "base"] = "head"
    """Factor on q·k: 1/sqrt(head dim), or sqrt(base head dim)/head dim."""
    init_std: float = 0.02
    """Spread of the initial weights (our reading: GPT-2's)."""
    tied: bool = True
    """Share the embedding with the output head."""
    vocab_multiple: int = 1
    """Pad the rows of the vocabulary to a multiple of this; padded rows are never scored or sampled."""
    from_run: str | None = None
    """Begin with the weights of this RUN, not with random ones; its sizes, schedule and tokenizer come with it."""

    def head_schedule(self) -> HeadSchedule:
        """The one schedule that `schedule` names. Raises InputError or ScheduleError where there is none or several."""
        try:
            found = expand_arm(self.schedule, n_layers=self.layers, d_model=self.d_model, base_heads=self.heads)
        except InputError as error:  # which speaks of an arm, and here is none
            raise InputError([re.sub("^arm ", "schedule ", problem) for problem in error.problems]) from None
        if len(found) != 1:
            raise InputError(f"schedule={self.schedule!r} is {len(found)} schedules; name one: {', '.join(found)}")
        return next(iter(found.values()))

    def rows(self, vocab_size: int) -> int:
        """Rows of the embedding for a tokenizer of `vocab_size` ids."""
        return math.ceil(vocab_size / self.vocab_multiple) * self.vocab_multiple

    def cost(self, vocab_size: int) -> Cost:
        return model_cost(self.head_schedule(), **self._sizes(vocab_size))

    def memory(
        self, vocab_size: int, *, micro_batch: int, activation_bytes: int, recompute: bool = False
    ) -> TrainingMemory:
        """Estimated bytes of one training step on one device."""
        return training_memory(
            self.head_schedule(),
            micro_batch=micro_batch,
            activation_bytes=activation_bytes,
            recompute=recompute,
            **self._sizes(vocab_size),
        )

    def _sizes(self, vocab_size: int) -> dict[str, Any]:
        return {
            "vocab_size": self.rows(vocab_size),
            "context": self.context,
            "intermediate_size": self.ffn or default_intermediate_size(self.d_model),
            "tied": self.tied,
        }

    def config(self, vocab_size: int, end_of_text: int | None = None) -> PrismConfig:
        """The configuration of the model for a tokenizer of `vocab_size` ids."""
        from ..model.configuration_prism import PrismConfig  # imports transformers: only where a model is built

        rows = self.rows(vocab_size)
        settings: dict[str, Any] = {
            "vocab_size": rows,
            "true_vocab_size": vocab_size if rows != vocab_size else None,
            "hidden_size": self.d_model,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "head_schedule": self.head_schedule(),
            "max_position_embeddings": self.context,
            "initializer_range": self.init_std,
            "norm_type": self.norm,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_width": self.rope_width,
            "attention_scale": self.attention_scale,
            "tie_word_embeddings": self.tied,
            "bos_token_id": end_of_text,
            "eos_token_id": end_of_text,
        }
        return PrismConfig(**settings)


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """AdamW and its learning rate (paper, section 4)."""

    lr: float = 6e-4
    """Peak learning rate."""
    lr_schedule: Literal["cosine", "constant", "wsd"] = "cosine"
    """After the warmup: cosine to the minimum, constant, or warmup-stable-decay (linear to the minimum at the end)."""
    min_lr_ratio: float = 0.1
    """Learning rate at the end of the schedule, as a part of the peak (our reading: nanoGPT's tenth)."""
    warmup: float = 0.025
    """Part of the steps in linear warmup."""
    decay: float = 0.2
    """Part of the steps in the final decay of wsd."""
    weight_decay: float = 0.1
    """Decay of matrices; norms are not decayed."""
    beta1: float = 0.9
    """AdamW's beta1."""
    beta2: float = 0.95
    """AdamW's beta2."""
    eps: float = 1e-8
    """AdamW's epsilon."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0: no clipping."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How far, in which steps, from which seed."""

    tokens: int = 2_883_584_000
    """Tokens to train on; rounded down to whole steps."""
    tokens_per_step: int = 262_144
    """Tokens of one optimizer step, over all devices and micro-batches."""
    micro_batch: int = 16
    """Sequences in one forward pass of one device; gradients are accumulated to tokens_per_step."""
    seed: int = 0
    """Seed of the data order and, unless init_seed is given, of the initial weights."""
    init_seed: int | None = None
    """Seed of the initial weights where it differs from seed."""
    evaluations: int = 20
    """Evaluations on the way, evenly spread; the last one, on the whole validation split, is after the last step."""
    evaluation_tokens: int = 1_000_000
    """Validation tokens of each evaluation but the last, which takes them all: windows spread evenly over the split."""
    log_every: int = 10
    """Steps between two lines of metrics."""
    save_minutes: float | None = None
    """Minutes of training between two checkpoints; default: 10, and longer where saving would take over 1 % of it."""
    keep: int = 2
    """Newest checkpoints to keep."""
    keep_every: int = 0
    """Also save at every multiple of this number of steps, and keep those for good; 0: none."""


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Where and in which precision."""

    device: str = "auto"
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Type of the matrix products; auto: bfloat16 where the device computes in it, else float32."""
    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    """Over the processes that torchrun starts: ddp (the whole model on each), fsdp (a share of it on each), or
    auto: ddp where the model with its optimizer takes less than half of a device."""
    compile: bool = False
    """Compile each layer with torch.compile."""
    recompute: bool = False
    """Keep of each layer only its input and compute the rest again on the way back: the same numbers in far less
    memory, for about a quarter more time."""
    threads: int | None = None
    """CPU threads; default: as many as torch takes."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every setting of a run."""

    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)

    @property
    def batch_sequences(self) -> int:
        """Sequences of one optimizer step, over all devices."""
        return self.training.tokens_per_step // self.model.context

    @property
    def steps(self) -> int:
        return self.training.tokens // self.training.tokens_per_step

    @property
    def trained_tokens(self) -> int:
        return self.steps * self.training.tokens_per_step

    def accumulation(self, world_size: int = 1) -> int:
        """Micro-batches that each device runs in one step."""
        return self.batch_sequences // (self.training.micro_batch * world_size)

    def check(self, world_size: int = 1) -> None:
        """Raise InputError with every setting that cannot be, and what would be legal."""
        problems = [
            *self._schedule_problems(),
            *self.data.problems(),
            *self._range_problems(),
            *self._batch_problems(world_size),
        ]
        if problems:
            raise InputError(problems)

    def _schedule_problems(self) -> list[str]:
        try:
            rules = self.model.head_schedule().check()
        except (InputError, ScheduleError) as error:
            return list(error.problems)
        return [rule.sentence for rule in rules if rule.name == "even-head-dim" and rule.outcome == "fail"]

    def _range_problems(self) -> list[str]:
        model, optimizer, training = self.model, self.optimizer, self.training
        at_least_one = {
            "context": model.context,
            "vocab_multiple": model.vocab_multiple,
            "ffn": 1 if model.ffn is None else model.ffn,
            "tokens_per_step": training.tokens_per_step,
            "micro_batch": training.micro_batch,
            "evaluations": training.evaluations,
            "evaluation_tokens": training.evaluation_tokens,
            "log_every": training.log_every,
            "keep": training.keep,
            "threads": 1 if self.device.threads is None else self.device.threads,
        }
        problems = [f"{name}={value} must be at least 1" for name, value in at_least_one.items() if value < 1]
        shares = {"min_lr_ratio": optimizer.min_lr_ratio, "warmup": optimizer.warmup, "decay": optimizer.decay}
        problems += [f"{name}={value} must lie in 0..1" for name, value in shares.items() if not 0 <= value <= 1]
        betas = {"beta1": optimizer.beta1, "beta2": optimizer.beta2}
        problems += [
            f"{name}={value} must be at least 0 and below 1" for name, value in betas.items() if not 0 <= value < 1
        ]
        positive = {
            "lr": optimizer.lr,
            "eps": optimizer.eps,
            "save_minutes": 1 if training.save_minutes is None else training.save_minutes,
        }
        positive |= {"rope_theta": model.rope_theta, "init_std": model.init_std}
        problems += [
            f"{name}={value} must be a number above 0" for name, value in positive.items() if not 0 < value < math.inf
        ]
        not_negative = {
            "weight_decay": optimizer.weight_decay,
            "clip": optimizer.clip,
            "keep_every": training.keep_every,
        }
        problems += [f"{name}={value} must not be negative" for name, value in not_negative.items() if not value >= 0]
        seeds = {"seed": training.seed, "init_seed": training.init_seed or 0}
        problems += [f"{name}={value} must lie in 0..2^63-1" for name, value in seeds.items() if not 0 <= value < 2**63]
        if training.tokens < training.tokens_per_step:
            problems.append(f"tokens={training.tokens:,} is less than one step of {training.tokens_per_step:,} tokens")
        if optimizer.lr_schedule == "wsd" and optimizer.warmup + optimizer.decay > 1:
            problems.append(
                f"warmup={optimizer.warmup} and decay={optimizer.decay} overlap; their sum must be at most 1"
            )
        return problems

    def _batch_problems(self, world_size: int) -> list[str]:
        context, per_step = self.model.context, self.training.tokens_per_step
        micro = self.training.micro_batch
        if min(context, per_step, micro) < 1:
            return []
        unit = context * micro * world_size
        if per_step % unit == 0:
            return []
        legal = [str(value) for value in (per_step // unit * unit, (per_step // unit + 1) * unit) if value]
        remedy = f"nearest that are: {' or '.join(legal)}"
        if per_step % (context * world_size) == 0:
            fitting = divisors(per_step // (context * world_size))
            nearest_below = max(value for value in fitting if value < micro)
            remedy += f"; or micro_batch={nearest_below}"
        return [
            f"tokens_per_step={per_step} is no multiple of context x micro_batch x devices = {context} x {micro} x "
            f"{world_size} = {unit}; {remedy}"
        ]


def with_model(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, model=replace(recipe.model, **changes))


def with_training(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, training=replace(recipe.training, **changes))
