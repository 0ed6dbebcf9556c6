"""Small models for the tests of the network."""

from typing import Any

import torch
from torch import Tensor

from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

SMALL: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 4, "vocab_size": 101, "max_position_embeddings": 64}
RAGGED = [1, 2, 3, 6]


def make(head_schedule: Any = RAGGED, seed: int = 0, **settings: Any) -> PrismForCausalLM:
    torch.manual_seed(seed)
    return PrismForCausalLM(PrismConfig(**{**SMALL, **settings}, head_schedule=head_schedule)).eval()


def ids(batch: int = 2, length: int = 20, seed: int = 1) -> Tensor:
    return torch.randint(0, 101, (batch, length), generator=torch.Generator().manual_seed(seed))


def randomise(model: PrismForCausalLM) -> PrismForCausalLM:
    """Weights far from their initial scale, so that attention is not nearly uniform and a fault shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model
