"""Expected values are worked by hand from the definitions on top of cost.py, or are the paper's model sizes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_transformer.cost import Cost, default_intermediate_size, model_cost, short, training_memory
from prism_transformer.model.head_schedule import HeadSchedule

SMALL = HeadSchedule.parse("3x2,6x2,8x2,12x6", d_model=768)


def paper_cost(text: str, d_model: int, **settings: Any) -> Cost:
    schedule = HeadSchedule.parse(text, d_model=d_model)
    hidden = default_intermediate_size(d_model)
    return model_cost(schedule, vocab_size=50257, context=1024, intermediate_size=hidden, **settings)


@pytest.mark.parametrize(
    ("text", "d_model", "hidden", "parameters"),
    [
        # 50257 x 768 = 38 597 376; a layer 4 x 768² + 3 x 768 x 2048 + 2 x 768 = 7 079 424; final norm 768
        ("3x2,6x2,8x2,12x6", 768, 2048, 123_551_232),
        # 51 463 168; 4 194 304 + 8 386 560 + 2 048 = 12 582 912 a layer; 1024
        ("4x3,8x3,16x18", 1024, 2730, 353_454_080),
        # 77 194 752; 9 437 184 + 18 874 368 + 3 072 = 28 314 624 a layer; 1536
        ("6x3,12x3,16x18", 1536, 4096, 756_747_264),
    ],
)
def test_parameters_of_the_papers_models(text: str, d_model: int, hidden: int, parameters: int) -> None:
    assert default_intermediate_size(d_model) == hidden
    assert paper_cost(text, d_model).parameters == parameters


def test_untied_embeddings_add_one_matrix() -> None:
    assert paper_cost("12x12", 768, tied=False).parameters == 123_551_232 + 38_597_376


def test_matmul_flops_of_the_small_model() -> None:
    # a layer: 2 x (4 x 768² + 3 x 768 x 2048) = 14 155 776, and 4 x 1024 x 768 = 3 145 728 for QK^T and AV;
    # head: 2 x 38 597 376 = 77 194 752
    cost = paper_cost("3x2,6x2,8x2,12x6", 768)
    assert cost.matmul_flops_per_token == 12 * (14_155_776 + 3_145_728) + 77_194_752


def test_softmax_entries_follow_the_heads_of_every_layer() -> None:
    # 3+3+6+6+8+8+6x12 = 106 heads
    assert paper_cost("3x2,6x2,8x2,12x6", 768).softmax_entries == 106 * 1024**2
    assert paper_cost("12x12", 768).softmax_entries == 144 * 1024**2
    assert [layer.softmax_entries for layer in paper_cost("3,12", 768).layers] == [3 * 1024**2, 12 * 1024**2]


def test_kv_cache() -> None:
    # keys and values: 2 x 12 layers x 768 values x 1024 tokens x 2 bytes
    assert paper_cost("3x2,6x2,8x2,12x6", 768).kv_cache_bytes == 37_748_736


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), min_size=1, max_size=12), st.booleans())
def test_only_softmax_entries_depend_on_the_heads(heads: list[int], tied: bool) -> None:
    settings: dict[str, Any] = {"vocab_size": 100, "context": 32, "intermediate_size": 128, "tied": tied}
    cost = model_cost(HeadSchedule(heads, d_model=48), **settings)
    uniform = model_cost(HeadSchedule([12] * len(heads), d_model=48), **settings)

    assert cost.parameters == uniform.parameters
    assert cost.matmul_flops_per_token == uniform.matmul_flops_per_token
    assert cost.kv_cache_bytes == uniform.kv_cache_bytes
    assert cost.softmax_entries * 12 * len(heads) == uniform.softmax_entries * sum(heads)


def test_training_memory_by_part() -> None:
    # two layers of width 8 with 1 and 4 heads, hidden 20, 10 tokens of vocabulary, 6 x 16 = 96 tokens a step;
    # parameters 10 x 8 + 2 x (4 x 64 + 3 x 8 x 20 + 16) + 8 = 1592
    memory = training_memory(
        HeadSchedule([1, 4], d_model=8), vocab_size=10, context=16, intermediate_size=20, micro_batch=6
    )
    assert (memory.weights, memory.gradients, memory.optimizer) == (4 * 1592, 4 * 1592, 8 * 1592)
    # per token: 2 layers x (10 x 8 + 4 x 20) x 2 bytes, 4 bytes for each of 5 heads, 3 x 8 x 2 for the last norm
    assert memory.activations == 96 * (2 * 160 * 2 + 4 * 5 + 48)
    assert memory.logits == 96 * 10 * (2 + 4 + 4)
    assert memory.total == 16 * 1592 + 96 * 708 + 9600


def test_training_memory_in_fp32_and_untied() -> None:
    settings: dict[str, Any] = {"vocab_size": 10, "context": 16, "intermediate_size": 20, "micro_batch": 1}
    memory = training_memory(HeadSchedule([1], d_model=8), tied=False, activation_bytes=4, **settings)

    assert memory.weights == 4 * (2 * 80 + 752 + 8)
    assert memory.activations == 16 * (160 * 4 + 4 + 96)
    assert memory.logits == 16 * 10 * 12


def test_recomputing_keeps_the_largest_layer_and_the_input_of_each() -> None:
    sizes: dict[str, Any] = {"vocab_size": 10, "context": 16, "intermediate_size": 20, "micro_batch": 6}
    memory = training_memory(HeadSchedule([1, 4], d_model=8), recompute=True, **sizes)
    # per token: one layer of (10 x 8 + 4 x 20) x 2 bytes with 4 heads, 2 inputs of 8 x 2 bytes, the last norm's 48
    assert memory.activations == 96 * (320 + 4 * 4 + 32 + 48)


def test_agrees_with_what_the_model_itself_holds() -> None:
    torch = pytest.importorskip("torch")
    from prism_transformer.model import PrismConfig, PrismForCausalLM

    schedule = HeadSchedule.parse("1,2,4x2", d_model=64)
    model = PrismForCausalLM(
        PrismConfig(hidden_size=64, num_hidden_layers=4, head_schedule=schedule.heads, vocab_size=256)
    )
    sizes = {"vocab_size": 256, "context": 64, "intermediate_size": model.config.intermediate_size}
    assert sum(p.numel() for p in model.parameters()) == model_cost(schedule, **sizes).parameters

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def remember(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = 0 if storage.data_ptr() in weights else storage.nbytes()
        return tensor

    tokens = torch.randint(0, 256, (8, 64))
    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        hidden = model.model(input_ids=tokens).last_hidden_state  # noqa: F841 - holds the graph, so no storage is reused
    estimate = training_memory(schedule, micro_batch=8, activation_bytes=4, **sizes).activations
    assert sum(kept.values()) == pytest.approx(estimate, rel=0.05)


def test_sizes_as_papers_print_them():
    assert [short(n) for n in (812, 262_144, 999_999, 123_551_232, 2.5e9)] == ["812", "262.1K", "1M", "123.6M", "2.5B"]
