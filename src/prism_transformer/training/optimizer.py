"""AdamW with decay on matrices only, and the learning rate as a pure function of the step."""

import math

import torch
from torch import nn

from .recipe import OptimizerSettings

OPTIMIZER_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps for each parameter; what it takes is in cost.py."""


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW over the parameters of `model`: weight decay on matrices (the embedding included), none on norms."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps, fused=True
    )


def learning_rate(step: int, steps: int, settings: OptimizerSettings) -> float:
    """The rate of `step` (from 0) in a run of `steps`: linear warmup, then the schedule down to min_lr_ratio x lr."""
    warmup_steps = round(settings.warmup * steps)
    if step < warmup_steps:
        return settings.lr * (step + 1) / warmup_steps
    minimum = settings.lr * settings.min_lr_ratio
    if settings.lr_schedule == "constant":
        return settings.lr
    if settings.lr_schedule == "wsd":
        decay_steps = max(1, round(settings.decay * steps))
        left = (steps - step) / decay_steps
        return minimum + (settings.lr - minimum) * min(1.0, left)
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return minimum + (settings.lr - minimum) * 0.5 * (1 + math.cos(math.pi * progress))


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
