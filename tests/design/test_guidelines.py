from typing import Any

import pytest

from prism_transformer.design.guidelines import check_guidelines, tensor_parallel_limit
from prism_transformer.errors import InputError
from prism_transformer.model.head_schedule import HeadSchedule, RuleResult

SMALL = HeadSchedule.parse("3x2,6x2,8x2,12x6", d_model=768)


def rule(name: str, schedule: HeadSchedule, **settings: Any) -> RuleResult:
    (found,) = [result for result in check_guidelines(schedule, **settings) if result.name == name]
    return found


def test_the_papers_schedules_keep_the_papers_guidelines() -> None:
    for text, d_model in (("3x2,6x2,8x2,12x6", 768), ("4x3,8x3,16x18", 1024), ("6x3,12x3,16x18", 1536)):
        results = check_guidelines(HeadSchedule.parse(text, d_model=d_model))
        assert [r.name for r in results] == ["staircase", "baseline", "fused-kernel", "alignment", "tensor-parallel"]
        assert all(r.outcome == "pass" for r in results[:4])


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("2,4,6,8,12x8", "warn"),  # single-step changes
        ("6x5,12x7", "warn"),
        ("6x4,12x8", "pass"),
        ("6x2,12x10", "pass"),
        ("12x12", "pass"),
        ("12x6,8x2,6x2,3x2", "pass"),
    ],
)
def test_staircase_holds_each_step_2_to_4_layers(text: str, outcome: str) -> None:
    assert rule("staircase", HeadSchedule.parse(text, d_model=768)).outcome == outcome


def test_staircase_names_the_step() -> None:
    sentence = rule("staircase", HeadSchedule.parse("3,6x2,8,12x8", d_model=768)).sentence
    assert sentence == "the step of 3 heads holds 1 layer (and 1 more); the guideline is 2 to 4 layers a step"


def test_baseline_is_half_the_layers_of_the_base_given() -> None:
    assert rule("baseline", SMALL).outcome == "pass"  # 6 of 12
    assert rule("baseline", HeadSchedule.parse("3x3,6x2,8x2,12x5", d_model=768)).outcome == "warn"
    assert rule("baseline", HeadSchedule.parse("6x3,12x4", d_model=768)).outcome == "pass"  # 4 of 7
    assert rule("baseline", HeadSchedule.parse("6x12", d_model=768), base_heads=12).outcome == "warn"


@pytest.mark.parametrize(
    ("head_dim", "device", "dtype", "outcome"),
    [
        (256, "cuda", "bfloat16", "pass"),
        (264, "cuda", "bfloat16", "warn"),
        (264, "cuda", "float16", "warn"),
        (64, "cuda", "float32", "warn"),
        (192, "cuda-consumer", "bfloat16", "pass"),
        (200, "cuda-consumer", "bfloat16", "warn"),
        (256, "cuda-consumer", "bfloat16", "warn"),
        (384, "cuda-consumer", "bfloat16", "warn"),
        (384, "cpu", "float32", "pass"),
        (384, "mps", "float32", "pass"),
    ],
)
def test_fused_kernel_limits_by_device_and_dtype(head_dim: int, device: str, dtype: str, outcome: str) -> None:
    schedule = HeadSchedule([1, 2], d_model=head_dim)
    assert rule("fused-kernel", schedule, device=device, dtype=dtype).outcome == outcome


def test_fused_kernel_names_the_layer_and_what_is_lost() -> None:
    sentence = rule("fused-kernel", HeadSchedule.parse("12x2,2x2", d_model=768)).sentence
    assert sentence.startswith("head dim 384 of layer 2 is above 256")
    sentence = rule("fused-kernel", HeadSchedule([1], d_model=224), device="cuda-consumer").sentence
    assert sentence == "head dim 224 of layer 0: no FlashAttention backward on consumer cards"
    assert "dropout 0" in rule("fused-kernel", HeadSchedule([1], d_model=256), device="cuda-consumer").sentence


@pytest.mark.parametrize(
    ("head_dim", "device", "outcome"),
    [(64, "cuda", "pass"), (100, "cuda", "warn"), (16, "cuda", "warn"), (32, "cuda", "pass"), (100, "cpu", "pass")],
)
def test_alignment(head_dim: int, device: str, outcome: str) -> None:
    assert rule("alignment", HeadSchedule([2, 2], d_model=2 * head_dim), device=device).outcome == outcome


def test_tensor_parallel_limit_is_the_gcd_of_all_layers() -> None:
    assert tensor_parallel_limit(SMALL) == 1
    assert tensor_parallel_limit(HeadSchedule.parse("4x3,8x3,16x18", d_model=1024)) == 4
    assert tensor_parallel_limit(HeadSchedule.parse("6x3,12x3,16x18", d_model=1536)) == 2
    assert rule("tensor-parallel", SMALL).outcome == "warn"
    assert rule("tensor-parallel", HeadSchedule.parse("12x12", d_model=768)).outcome == "pass"


def test_a_tensor_parallel_size_that_does_not_fit_names_the_layer() -> None:
    result = rule("tensor-parallel", SMALL, tensor_parallel=2)
    assert result.outcome == "fail"
    assert (
        result.sentence
        == "layer 0 has 3 heads, no multiple of 2; the largest size that fits every layer is 1 (the gcd)"
    )
    # layer 0 alone would fit: the check reads every layer
    late = HeadSchedule.parse("12x6,3x2", d_model=768)
    assert rule("tensor-parallel", late, tensor_parallel=4).sentence.startswith("layer 6 has 3 heads")
    assert rule("tensor-parallel", late, tensor_parallel=3).outcome == "pass"


def test_unknown_settings_are_refused_all_at_once() -> None:
    with pytest.raises(InputError) as caught:
        check_guidelines(SMALL, device="tpu", dtype="int8", tensor_parallel=0)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 3
    assert "device='tpu' is unknown; known: cuda, cuda-consumer, mps, cpu" in caught.value.problems
