"""Several processes train what one process trains: DDP and FSDP2 over gloo, with 2, 3 and 4 of them."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prism_transformer.checkpoint import load_model
from prism_transformer.errors import InputError
from prism_transformer.training.recipe import Recipe, with_training
from prism_transformer.training.state import RunFolder

from . import ranks
from .conftest import make_corpus
from .runs import STEPS, assert_same_run, records, run, tensors, whole_run

pytestmark = pytest.mark.skipif(not hasattr(signal := __import__("signal"), "SIGKILL"), reason="needs POSIX processes")


def spread(recipe: Recipe, way: str, **device: object) -> Recipe:
    return replace(recipe, device=replace(recipe.device, parallel=way, **device))


@pytest.fixture(scope="module")
def whole(logged) -> Recipe:
    """4 sequences a step, one in a micro-batch: 4 micro-batches on 1 rank, 2 on 2, 1 on 4."""
    return with_training(logged, micro_batch=1)


@pytest.fixture(scope="module")
def alone(whole, corpus, tmp_path_factory) -> Path:
    return whole_run(whole, corpus, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def other(whole) -> Recipe:
    """A head of its own, rows of the vocabulary that stand for no token, LayerNorm, the base head's RoPE and scale."""
    model = replace(whole.model, tied=False, vocab_multiple=64, norm="layernorm")
    model = replace(model, rope_width="base", attention_scale="base")
    return replace(with_training(whole, tokens=8 * 64), model=model)


@pytest.fixture(scope="module")
def other_alone(other, corpus, tmp_path_factory) -> Path:
    return whole_run(other, corpus, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def group(whole, other, corpus, tmp_path_factory) -> dict[str, Path]:
    """On 2 ranks by DDP and FSDP2: as it is, in bfloat16, with layers recomputed, and the other model; on 4 by DDP."""
    folder = tmp_path_factory.mktemp("group")
    low = with_training(whole, tokens=8 * 64)
    runs = {
        "ddp": whole,
        "fsdp": spread(whole, "fsdp"),
        "ddp bfloat16": spread(low, "ddp", dtype="bfloat16"),
        "fsdp bfloat16": spread(low, "fsdp", dtype="bfloat16"),
        "ddp recomputed": spread(whole, "ddp", recompute=True),
        "fsdp recomputed": spread(whole, "fsdp", recompute=True),
        "ddp other": other,
        "fsdp other": spread(other, "fsdp"),
    }
    outs = {name: folder / name for name in [*runs, "4"]}
    found = ranks.run_ranks(2, ranks.trained, [(recipe, outs[name], corpus.folder) for name, recipe in runs.items()])
    found += ranks.run_ranks(4, ranks.trained, [(whole, outs["4"], corpus.folder)])
    assert {tuple(outcome["end"]) for of_rank in found for outcome in of_rank} == {("finished", "")}
    for of_rank in found[1:2] + found[3:]:  # all but the first rank of either group
        assert all(outcome["said"] == [] and outcome["records"] == 0 for outcome in of_rank)
    assert "2 processes, a share of the model on each (FSDP2)" in found[0][1]["said"]
    return outs


def assert_equal_but_for_rounding(one: Path, other: Path, rel: float = 1e-5) -> None:
    for a, b in zip(records(one), records(other), strict=True):
        assert a.pop("batches", None) == b.pop("batches", None)  # the same ids in the same order
        assert a == pytest.approx(b, rel=rel)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "4", "ddp recomputed", "fsdp recomputed"])
def test_losses_and_norms_are_those_of_one_process(group, alone, name):
    assert_equal_but_for_rounding(group[name], alone)
    assert min(line["grad_norm"] for line in records(alone) if "grad_norm" in line) < 1.0  # clipped and not
    assert max(line["grad_norm"] for line in records(alone) if "grad_norm" in line) > 1.0


def test_the_checkpoints_do_not_know_how_many_wrote_them(group, alone):
    expected = tensors(alone)
    for name in ("ddp", "fsdp", "4"):
        found = tensors(group[name])
        assert found.keys() == expected.keys()
        assert {k: (v.shape, v.dtype) for k, v in found.items()} == {k: (v.shape, v.dtype) for k, v in expected.items()}
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5, msg=key)
        load_model(group[name] / "checkpoints" / f"step-{STEPS:06d}")


@pytest.mark.parametrize("name", ["ddp other", "fsdp other"])
def test_another_model_is_trained_and_saved_as_by_one_process(group, other_alone, name):
    assert_equal_but_for_rounding(group[name], other_alone)
    found, expected = tensors(group[name], 8), tensors(other_alone, 8)
    assert found.keys() == expected.keys()
    assert found["lm_head.weight"].shape == found["model.embed_tokens.weight"].shape == (320, 16)  # 257 ids, padded
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5, msg=key)
    load_model(group[name] / "checkpoints" / "step-000008")


def test_sharded_bfloat16_is_replicated_bfloat16(group):
    """Matrices gathered in bfloat16 are what autocast makes of them; norms and the residual stream stay in float32."""
    assert_equal_but_for_rounding(group["fsdp bfloat16"], group["ddp bfloat16"], rel=1e-3)
    saved = tensors(group["fsdp bfloat16"], 8)
    assert {value.dtype for value in saved.values()} == {torch.float32}
    assert any(not torch.equal(value.bfloat16().float(), value) for value in saved.values())


def test_inside(whole, corpus, tmp_path):
    """3 ranks, so that shares are unequal: the same start as one process, the tie, and a measurement of 7 windows."""
    recipe = with_training(whole, tokens_per_step=48, tokens=48 * 5)
    for found in ranks.run_ranks(3, ranks.inside, recipe, corpus.folder, tmp_path / "run"):
        assert found["names"] and found["same start"] and found["tied"] and found["same losses"]
        assert 0.2 < found["share"] < 0.45
        assert (found["batches"], found["calls"]) == (4, 2)  # of 4 batches, ranks 1 and 2 repeat one
        assert found["batch sizes"] == [28, 3]


@pytest.mark.parametrize("who", [0, 1])
def test_a_signal_to_one_rank_in_mid_step_saves_on_all_and_goes_on_with_1_2_and_4(whole, corpus, alone, tmp_path, who):
    """Two micro-batches a step and rank: before the 9th pass, in the middle of step 5, 4 steps are whole."""
    way = spread(whole, "fsdp" if who else "ddp")
    found = ranks.run_ranks(2, ranks.stopped, way, tmp_path / "two", corpus.folder, who, 9)
    sentence = "stopped at step 4 of 24, saved; the same command goes on"
    assert [outcome["end"] for outcome in found] == [["Stopped", sentence]] * 2
    assert [outcome["passes"] for outcome in found] == [9, 9]
    assert RunFolder(tmp_path / "two").latest().name == "step-000004"
    for size in (1, 2, 4):
        out = Path(shutil.copytree(tmp_path / "two", tmp_path / str(size)))
        if size == 1:
            run(way, out, corpus)
        else:
            ended = ranks.run_ranks(size, ranks.trained, [(way, out, corpus.folder)])
            assert [outcome["end"][0] for (outcome,) in ended] == ["finished"] * size
        assert_equal_but_for_rounding(out, alone)


def test_resumed_on_as_many_ranks_it_is_bit_for_bit_the_unbroken_run(whole, corpus, group, tmp_path):
    """Both ways; and one more time, from the first resumed run's own checkpoint."""
    for way in ("ddp", "fsdp"):
        recipe, out = spread(whole, way) if way == "fsdp" else whole, tmp_path / way
        ranks.run_ranks(2, ranks.stopped, recipe, out, corpus.folder, 1, 14)
        ranks.run_ranks(2, ranks.stopped, recipe, out, corpus.folder, 0, 5)
        assert RunFolder(out).latest().name == "step-000009"
        ranks.run_ranks(2, ranks.trained, [(recipe, out, corpus.folder)])
        assert_same_run(out, group[way])


def test_a_lost_process_ends_the_others_with_a_sentence(whole, corpus, tmp_path):
    first, second = ranks.run_ranks(2, ranks.lost, whole, tmp_path / "run", corpus.folder)
    assert second is None
    assert first["end"][0] == "RunError"
    assert first["end"][1].startswith("rank 0 lost another process of the run (")
    assert len(records(tmp_path / "run")) >= 5


def test_the_others_wait_while_rank_0_saves_for_longer_than_their_time_out(whole, corpus, tmp_path):
    recipe = with_training(whole, tokens=3 * 64, evaluations=1)
    found = ranks.run_ranks(2, ranks.slow_saves, recipe, tmp_path / "run", corpus.folder)
    assert [outcome["end"][0] for outcome in found] == ["finished"] * 2
    assert found[0]["seconds"] > 6


def test_a_rank_that_reads_another_text_is_named_by_all(whole, corpus, tmp_path):
    other = make_corpus(tmp_path / "other", seed=7)
    found = ranks.run_ranks(2, ranks.apart, whole, tmp_path / "run", [corpus.folder, other.folder])
    for outcome in found:
        kind, sentences = outcome["end"]
        assert kind == "InputError"
        assert f"rank 1 has another text: {other.fingerprint}, and rank 0 has {corpus.fingerprint}" in sentences


def test_tokens_per_step_that_the_ranks_cannot_share_are_refused_with_the_nearest(whole):
    with pytest.raises(InputError) as caught:
        whole.check(3)
    assert str(caught.value) == (
        "tokens_per_step=64 is no multiple of context x micro_batch x devices = 16 x 1 x 3 = 48; nearest that are: "
        "48 or 96"
    )
    whole.check(4)


def test_three_ranks_that_cannot_share_a_step_all_say_so(whole, corpus, tmp_path):
    found = ranks.run_ranks(3, ranks.trained, [(whole, tmp_path / "run", corpus.folder)])
    assert {outcome["end"][0] for (outcome,) in found} == {"InputError"}
    assert not (tmp_path / "run").exists()
    assert math.isfinite(found[0][0]["seconds"])
