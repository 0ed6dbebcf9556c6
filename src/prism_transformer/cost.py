"""What a schedule costs before anything is run: parameters, FLOPs, softmax entries, cache and training memory.

Every figure is a sum over layers: no layer speaks for the others. With T = context, d = d_model, m = intermediate size
and V = vocabulary rows, per layer l of h_l heads:

    parameters        4 d² (q, k, v, o) + 3 d m (gate, up, down) + 2 d (two RMSNorms)
    matmul FLOPs      2 per weight of those matrices and token, and 4 T d a token for QK^T and AV
    softmax entries   h_l T² a sequence

and once: V d for the embedding (twice when not tied), d for the final norm, 2 V d FLOPs a token for the head.
Only the softmax entries depend on the heads, which is why equal matrix FLOPs are not equal work.
"""

from dataclasses import dataclass

from .model.head_schedule import HeadSchedule

WEIGHT_BYTES = 4
"""of a parameter, or of its gradient, in fp32"""
MOMENT_BYTES = 8
"""of AdamW's two moments of a parameter, in fp32"""


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer's share of `Cost`."""

    heads: int
    head_dim: int
    parameters: int
    matmul_flops_per_token: int
    softmax_entries: int
    kv_cache_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A model's cost; `layers` holds each layer's share, and what belongs to no layer is beside it.

    Attention is counted in full, T² pairs a sequence, as the field's model-FLOPs figures do, and not as the causal half
    that a block-causal kernel computes.
    """

    layers: tuple[LayerCost, ...]
    embedding_parameters: int
    """Embedding, head where it is not tied, and the final norm."""
    head_flops_per_token: int

    @property
    def parameters(self) -> int:
        return self.embedding_parameters + sum(layer.parameters for layer in self.layers)

    @property
    def matmul_flops_per_token(self) -> int:
        """Multiplications and additions of the forward pass, averaged over a sequence; training takes 3 times."""
        return self.head_flops_per_token + sum(layer.matmul_flops_per_token for layer in self.layers)

    @property
    def softmax_entries(self) -> int:
        """sum(h_l) T² of one sequence."""
        return sum(layer.softmax_entries for layer in self.layers)

    @property
    def kv_cache_bytes(self) -> int:
        """Keys and values of one sequence at full context, in bf16."""
        return sum(layer.kv_cache_bytes for layer in self.layers)


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Estimated bytes of one training step on one device, without the allocator's own overhead."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits


def default_intermediate_size(d_model: int) -> int:
    """SwiGLU's hidden width floor(8 d / 3): as many parameters as an MLP of width 4 d (paper, section 4)."""
    return 8 * d_model // 3


def model_cost(
    schedule: HeadSchedule,
    *,
    vocab_size: int,
    context: int,
    intermediate_size: int,
    tied: bool = True,
) -> Cost:
    """Cost of the Llama-shaped model with this schedule."""
    d = schedule.d_model
    matrices = 4 * d * d + 3 * d * intermediate_size
    layers = []
    for heads, head_dim in zip(schedule.heads, schedule.head_dims, strict=True):
        attention_width = heads * head_dim
        layers.append(
            LayerCost(
                heads=heads,
                head_dim=head_dim,
                parameters=matrices + 2 * d,
                matmul_flops_per_token=2 * matrices + 4 * context * attention_width,
                softmax_entries=heads * context**2,
                kv_cache_bytes=2 * context * attention_width * 2,  # keys and values in bf16
            )
        )
    return Cost(
        layers=tuple(layers),
        embedding_parameters=vocab_size * d * (1 if tied else 2) + d,
        head_flops_per_token=2 * vocab_size * d,
    )


def training_memory(
    schedule: HeadSchedule,
    *,
    vocab_size: int,
    context: int,
    intermediate_size: int,
    micro_batch: int,
    tied: bool = True,
    activation_bytes: int = 2,
    recompute: bool = False,
) -> TrainingMemory:
    """Estimate for AdamW with fp32 weights, gradients and moments, and a fused attention kernel.

    Activations kept for the backward pass, per token and layer: 10 d + 4 m values of `activation_bytes` (2 under bf16
    autocast, 4 in fp32): input, normalised value and output of both norms, q, k, v, attention's output; gate, up,
    silu(gate) and their product; and one fp32 softmax normaliser per head. The final norm keeps 3 d. With `recompute`
    all of it is kept of one layer at a time, the largest, and d values of each. Logits are counted for the plain loss:
    their values, the fp32 log-probabilities and the fp32 gradient.
    """
    cost = model_cost(schedule, vocab_size=vocab_size, context=context, intermediate_size=intermediate_size, tied=tied)
    tokens = micro_batch * context
    layer_bytes = (10 * schedule.d_model + 4 * intermediate_size) * activation_bytes
    layers = [layer_bytes + 4 * heads for heads in schedule.heads]
    kept = max(layers) + len(layers) * schedule.d_model * activation_bytes if recompute else sum(layers)
    per_token = kept + 3 * schedule.d_model * activation_bytes
    return TrainingMemory(
        weights=WEIGHT_BYTES * cost.parameters,
        gradients=WEIGHT_BYTES * cost.parameters,
        optimizer=MOMENT_BYTES * cost.parameters,
        activations=tokens * per_token,
        logits=tokens * vocab_size * (activation_bytes + 8),
    )


def short(number: int) -> str:
    """123551232 -> "123.6M": four digits, as papers print sizes."""
    exponent = int(f"{number:.3e}".partition("e")[2])  # of the rounded number, so that 999999 is 1M
    power = min(exponent // 3, 4)
    return f"{number / 1000**power:.4g}{('', 'K', 'M', 'B', 'T')[power]}"
