"""A run from its first step to its last, stopped and broken in every way on the way."""

import errno
import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from prism_transformer.checkpoint import load_model
from prism_transformer.data import DataSettings, train_windows
from prism_transformer.errors import DivergedError, InputError, RunError, Stopped
from prism_transformer.evaluation.loss import text_loss, token_losses
from prism_transformer.files import read_json
from prism_transformer.model.modeling_prism import PrismMLP
from prism_transformer.training import session, state
from prism_transformer.training.build import new_model
from prism_transformer.training.device import torch_settings_kept
from prism_transformer.training.loop import train
from prism_transformer.training.metrics import Metrics, Stopwatch, read_metrics
from prism_transformer.training.recipe import with_model, with_training
from prism_transformer.training.run_lock import InUseError, locked
from prism_transformer.training.state import RunFolder

from .conftest import make_corpus, write_text
from .runs import STEPS, assert_same_run, at_step, quiet, records, run, tensors

# One run


def test_a_run_writes_what_the_design_says(unbroken, recipe, corpus):
    assert sorted(p.name for p in unbroken.iterdir() if not p.name.startswith(".")) == [
        "checkpoints",
        "document_losses.json",
        "environment.json",
        "metrics.jsonl",
        "recipe.yaml",
    ]
    lines = records(unbroken)
    assert [line["step"] for line in lines if "loss" in line] == [1, 5, 10, 15, 20, 24]
    assert [line["step"] for line in lines if "val_loss" in line] == [6, 12, 18, 24]
    assert [line["tokens"] for line in lines] == [64 * line["step"] for line in lines]
    assert lines[-1]["final"] is True
    assert all(math.isfinite(value) for line in lines for name, value in line.items() if name != "batches")


def test_the_model_learns(unbroken):
    losses = [line["loss"] for line in records(unbroken) if "loss" in line]
    assert losses[0] == pytest.approx(math.log(257), rel=0.02)  # it knows nothing at the start
    assert losses[-1] < losses[0] - 1


def test_the_final_loss_is_that_of_the_saved_model_on_the_whole_validation_split(unbroken, recipe, corpus):
    final = records(unbroken)[-1]
    stream = corpus.split("validation")
    model = load_model(unbroken / "checkpoints" / f"step-{STEPS:06d}")
    found = text_loss(token_losses(model, stream, context=recipe.model.context, batch_size=1), stream)
    assert final["val_loss"] == pytest.approx(found.nats_per_token, rel=1e-6)
    assert final["val_tokens"] == len(stream) - 1
    assert final["val_bits_per_byte"] == pytest.approx(
        final["val_loss"] * (len(stream) - 1) / math.log(2) / stream.text_bytes, rel=1e-9
    )


def test_the_losses_of_the_documents_sum_to_the_final_loss(unbroken, corpus):
    final, documents = records(unbroken)[-1], read_json(unbroken / "document_losses.json")
    assert len(documents["nats"]) == len(corpus.split("validation").document_starts)
    assert sum(documents["tokens"]) == final["val_tokens"]
    assert sum(documents["nats"]) / final["val_tokens"] == pytest.approx(final["val_loss"], rel=1e-9)


def test_evaluations_on_the_way_take_only_their_tokens(unbroken, recipe):
    assert [line["val_tokens"] for line in records(unbroken)[:-1] if "val_loss" in line] == [32, 32, 32]


def test_the_first_step_is_the_mean_loss_of_its_batch_and_the_norm_of_its_gradient(unbroken_logged, logged, corpus):
    """Computed from the whole batch at once by cross_entropy over the logits."""
    model = new_model(logged, corpus)
    batch = train_windows(corpus.split("train"), context=16, batch_size=4, seed=0, step=0)
    ids = torch.from_numpy(batch)
    loss = F.cross_entropy(model(ids[:, :-1], use_cache=False).logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    first = records(unbroken_logged)[0]
    assert first["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert first["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert first["lr"] == pytest.approx(0.01 * 1 / 2)  # the first of round(0.1 x 24) = 2 steps of warmup


@pytest.mark.parametrize("clip", [0.1, 1.0, 0.0])
def test_the_gradient_is_clipped_to_its_largest_norm_and_0_is_no_limit(tmp_path, logged, corpus, monkeypatch, clip):
    clipped = []
    step = torch.optim.AdamW.step

    def look(optimizer, *arguments):
        gradients = [p.grad.flatten() for group in optimizer.param_groups for p in group["params"]]
        clipped.append(torch.cat(gradients).norm().item())
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", look)
    recipe = replace(with_training(logged, tokens=3 * 64), optimizer=replace(logged.optimizer, clip=clip))
    run(recipe, tmp_path / "run", corpus)
    norms = [line["grad_norm"] for line in records(tmp_path / "run") if "grad_norm" in line]
    assert max(norms) > 1.0  # there is something to clip
    np.testing.assert_allclose(clipped, [min(norm, clip or math.inf) for norm in norms], rtol=1e-4)


@pytest.mark.parametrize("micro_batch", [1, 2, 8])
def test_micro_batches_change_nothing_but_the_rounding(tmp_path, logged, corpus, micro_batch):
    """8 sequences as 8 x 1, 4 x 2 and 1 x 8: losses and gradients are those of the tokens of the whole step."""
    outs = []
    for size in (micro_batch, 4):
        recipe = with_training(logged, micro_batch=size, tokens_per_step=128, tokens=6 * 128)
        outs.append(tmp_path / f"micro-{size}")
        run(recipe, outs[-1], corpus)
    for one, other in zip(*map(records, outs), strict=True):
        assert one.pop("batches", None) == other.pop("batches", None)
        assert one == pytest.approx(other, rel=1e-4)
    for name, tensor in tensors(outs[0], 6).items():
        torch.testing.assert_close(tensor, tensors(outs[1], 6)[name], rtol=1e-3, atol=1e-5, msg=name)


def test_recomputed_layers_train_bit_for_bit_the_same(tmp_path, logged, corpus, unbroken_logged, monkeypatch):
    again = []
    monkeypatch.setattr(PrismMLP, "forward", lambda mlp, x, whole=PrismMLP.forward: again.append(mlp) or whole(mlp, x))
    run(replace(logged, device=replace(logged.device, recompute=True)), tmp_path / "run", corpus)
    assert_same_run(tmp_path / "run", unbroken_logged)
    per_step = logged.accumulation() * logged.model.layers
    assert len(again) >= 2 * logged.steps * per_step, "each layer was computed twice in training"


def test_evaluating_often_or_once_leaves_training_bit_for_bit_the_same(tmp_path, logged, corpus, unbroken_logged):
    out = tmp_path / "run"
    run(with_training(logged, evaluations=1), out, corpus)
    assert [line for line in records(out) if "loss" in line] == [
        line for line in records(unbroken_logged) if "loss" in line
    ]
    assert records(out)[-1] == records(unbroken_logged)[-1]
    assert all(torch.equal(a, tensors(unbroken_logged)[name]) for name, a in tensors(out).items())


def test_saving_often_leaves_training_bit_for_bit_the_same(tmp_path, recipe, corpus, unbroken):
    out = tmp_path / "run"
    run(with_training(recipe, save_minutes=1e-9, keep=3), out, corpus)
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == [
        "latest",
        "step-000022",
        "step-000023",
        "step-000024",
    ]
    assert_same_run(out, unbroken)


def test_tokens_per_second_count_training_and_neither_evaluation_nor_saving(tmp_path, short, corpus, monkeypatch):
    """By a clock on which a step takes 2 s, an evaluation and a save 1000 s each: 64 tokens a step are 32 a second."""
    now = [0.0]

    def takes(seconds: float, function):
        def timed(*arguments, **options):
            now[0] += seconds
            return function(*arguments, **options)

        return timed

    monkeypatch.setattr(session, "Stopwatch", lambda seconds: Stopwatch(seconds, clock=lambda: now[0]))
    monkeypatch.setattr(session, "set_learning_rate", takes(2, session.set_learning_rate))
    monkeypatch.setattr(session, "token_losses", takes(1000, session.token_losses))
    monkeypatch.setattr(state, "save_model", takes(1000, state.save_model))
    run(short, tmp_path / "run", corpus)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["seconds"] for line in lines] == [2 * line["step"] for line in lines]
    assert {line["tokens_per_second"] for line in lines if "loss" in line} == {32}


def test_a_seed_gives_one_run_and_another_seed_another(tmp_path, recipe, corpus, unbroken):
    run(recipe, tmp_path / "same", corpus)
    assert_same_run(tmp_path / "same", unbroken)
    run(with_training(recipe, seed=1, tokens=64), tmp_path / "other", corpus)
    assert records(tmp_path / "other")[0]["loss"] != records(unbroken)[0]["loss"]


def test_the_initial_seed_and_the_seed_of_the_data_are_apart(recipe, corpus):
    def start(**seeds: int) -> torch.Tensor:
        return new_model(with_training(recipe, **seeds), corpus).lm_head.weight

    assert torch.equal(start(seed=3), start(seed=5, init_seed=3))
    assert torch.equal(start(seed=3, init_seed=0), start(seed=0))
    assert not torch.equal(start(seed=3), start(seed=4))


def test_a_run_leaves_random_numbers_threads_and_signals_as_they_were(tmp_path, recipe, corpus):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with torch_settings_kept():
        torch.set_num_threads(2)
        run(with_training(recipe, tokens=64), tmp_path / "run", corpus)
        assert torch.get_num_threads() == 2
    assert torch.equal(torch.rand(3), expected)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_run_prints_only_what_it_says(tmp_path, recipe, corpus, capfd):
    said = []
    train(recipe, tmp_path / "run", corpus=corpus, say=said.append)
    assert capfd.readouterr() == ("", "")
    windows = (len(corpus.split("train")) - 1) // 16
    assert said[0] == "device cpu, float32: as asked"
    assert said[1].startswith(f"text: {windows * 16 + 1:,} tokens in {windows:,} windows of 16")
    assert f"1,536 tokens of training are {1536 / (windows * 16):.2f} epochs" in said[1]
    assert len(said) == 2


def test_many_epochs_are_said(tmp_path, recipe, corpus):
    said = []
    recipe = with_training(recipe, tokens=64 * 64, evaluations=1)
    train(recipe, tmp_path / "run", corpus=corpus, say=said.append)
    assert any(line.startswith("warning: ") and "epochs: beyond 4" in line for line in said)


def test_bfloat16_trains_and_keeps_its_weights_in_float32(tmp_path, recipe, corpus, unbroken):
    out = tmp_path / "run"
    final = run(replace(recipe, device=replace(recipe.device, dtype="bfloat16")), out, corpus)
    assert {tensor.dtype for tensor in tensors(out).values()} == {torch.float32}
    expected = records(unbroken)[-1]["val_loss"]
    assert final["val_loss"] != expected
    assert final["val_loss"] == pytest.approx(expected, rel=0.02)


# The same command again


def test_a_finished_run_says_so_and_is_not_touched(unbroken, recipe, corpus):
    before = {p: p.read_bytes() for p in unbroken.rglob("*") if p.is_file()}
    said, shown = [], []
    final = train(recipe, unbroken, corpus=corpus, say=said.append, on_record=shown.append)
    assert final == read_metrics(unbroken / "metrics.jsonl")[-1]
    assert said == [f"{unbroken} is finished: validation loss {final['val_loss']:.4f} after 1,536 tokens"]
    assert shown == []
    assert {p: p.read_bytes() for p in unbroken.rglob("*") if p.is_file()} == before


def test_other_settings_over_a_run_are_refused_and_nothing_is_touched(unbroken, recipe, corpus):
    before = {p: p.read_bytes() for p in unbroken.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=r"(?s)holds a run with other settings.*training\.tokens: 1536 -> 3072"):
        run(with_training(recipe, tokens=2 * STEPS * 64), unbroken, corpus)
    assert {p: p.read_bytes() for p in unbroken.rglob("*") if p.is_file()} == before


def test_other_text_under_a_run_is_refused(tmp_path, unbroken, recipe, corpus):
    other = make_corpus(tmp_path, seed=9)
    with pytest.raises(InputError, match=f"data.fingerprint: {corpus.fingerprint} -> {other.fingerprint}"):
        run(recipe, unbroken, other)


def test_a_folder_of_others_is_refused_before_any_text_is_read(tmp_path, recipe):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds something else"):
        train(replace(recipe, data=DataSettings(paths=("absent.txt",))), tmp_path, say=quiet)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_data_of_others_is_not_touched(tmp_path, recipe):
    text = write_text(tmp_path / "text.txt", words=140, seed=0)
    (tmp_path / "run" / "data").mkdir(parents=True)
    (tmp_path / "run" / "data" / "measured.csv").write_text("1,2")
    with pytest.raises(InputError, match="data: holds files, but no prepared corpus"):
        train(replace(recipe, data=DataSettings(paths=(str(text),))), tmp_path / "run", say=quiet)
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"} == {
        "text.txt",
        "run/data/measured.csv",
    }
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_run_in_use_is_refused(tmp_path, recipe, corpus):
    out = tmp_path / "run"
    with locked(out), pytest.raises(InUseError, match="is in use by process"):
        run(recipe, out, corpus)


# Its text


def test_text_is_prepared_in_the_run_folder_and_used_again(tmp_path, recipe):
    text = write_text(tmp_path / "text.txt", words=140, seed=0)
    recipe = replace(recipe, data=DataSettings(paths=(str(text),), tokenizer="bytes", validation_share=0.1))
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(recipe, out, say=quiet, on_record=at_step(5, lambda: signal.raise_signal(signal.SIGINT)))
    text.unlink()  # the run has its tokens
    said = []
    final = train(recipe, out, say=said.append)
    assert final["final"]
    assert (out / "data" / "manifest.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("paths", [("absent.txt",), ("empty.txt",)])
def test_without_text_nothing_is_left(tmp_path, recipe, monkeypatch, paths):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    with pytest.raises(InputError):
        train(replace(recipe, data=DataSettings(paths=paths)), "run", say=quiet)
    assert [p.name for p in tmp_path.iterdir()] == ["empty.txt"]


def test_a_context_longer_than_the_text_is_refused_and_a_shorter_one_goes_on(tmp_path, recipe):
    text = write_text(tmp_path / "text.txt", words=140, seed=0)
    data = DataSettings(paths=(str(text),), tokenizer="bytes", validation_share=0.1, test_share=0.1)
    long = with_training(with_model(replace(recipe, data=data), context=2048), tokens_per_step=4096, tokens=4096)
    with pytest.raises(InputError, match=r"a window of context 2048 takes 2,049; lower the context to at most"):
        train(long, tmp_path / "run", say=quiet)
    assert train(replace(recipe, data=data), tmp_path / "run", say=quiet)["final"]


# What breaks


def test_an_absurd_learning_rate_ends_the_run_with_step_and_rate(tmp_path, logged, corpus):
    out = tmp_path / "run"
    recipe = replace(logged, optimizer=replace(logged.optimizer, lr=1e30, warmup=0.0))
    with pytest.raises(
        DivergedError, match=r"at step 2 of seed 0, with learning rate 9\.96e\+29: .* none was saved yet"
    ):
        run(recipe, out, corpus)
    assert records(out)[-1] == {"step": 2, "tokens": 128, "diverged": True, "lr": pytest.approx(1e30, rel=0.02)}
    assert not list((out / "checkpoints").glob("*")) if (out / "checkpoints").exists() else True


def poison(monkeypatch, step: int) -> None:
    """The update of `step` ruins the weights."""
    rate = session.set_learning_rate
    left = [step]

    def set_rate(optimizer, lr: float) -> None:
        left[0] -= 1
        rate(optimizer, lr if left[0] else math.nan)

    monkeypatch.setattr(session, "set_learning_rate", set_rate)


@pytest.mark.parametrize("step", [4, 5, 8])
def test_poisoned_weights_never_become_a_checkpoint(tmp_path, short, corpus, monkeypatch, unbroken_short, step):
    """Seen at an evaluation (4), at a save (5), or at the last save (8): the state before them stays, and goes on."""
    out = tmp_path / "run"
    poison(monkeypatch, step)
    with pytest.raises(DivergedError, match=rf"at step {step} of seed 0, .* Last good state: .*step-0000"):
        run(short, out, corpus)
    assert records(out)[-1]["diverged"] is True
    assert records(out)[-1]["step"] == step
    assert RunFolder(out).latest().name == f"step-{step - 1:06d}"
    load_model(RunFolder(out).latest())
    monkeypatch.undo()
    run(short, out, corpus)
    assert_same_run(out, unbroken_short)


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tmp_path, short, corpus, monkeypatch, unbroken_short):
    """The loss may be finite and its gradient not; then metrics and checkpoints would be poisoned one by one."""
    out = tmp_path / "run"
    clip, calls = torch.nn.utils.clip_grad_norm_, []

    def break_fifth(parameters, *arguments):
        norm = clip(parameters, *arguments)
        calls.append(norm)
        return norm * math.nan if len(calls) == 5 else norm

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", break_fifth)
    with pytest.raises(DivergedError, match="the norm of the gradient is nan at step 5 of seed 0"):
        run(short, out, corpus)
    assert RunFolder(out).latest().name == "step-000004"
    monkeypatch.undo()
    run(short, out, corpus)
    assert_same_run(out, unbroken_short)


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_while_saving_is_warned_of_and_training_goes_on(
    tmp_path, short, corpus, monkeypatch, unbroken_short
):
    out = tmp_path / "run"
    save_model, calls, said = state.save_model, [], []

    def fail_at_first(*arguments, **options):
        calls.append(arguments)
        return full_disk() if len(calls) <= 3 else save_model(*arguments, **options)

    monkeypatch.setattr(state, "save_model", fail_at_first)
    train(short, out, corpus=corpus, say=said.append)
    warnings = [line for line in said if line.startswith("warning: ")]
    assert len(warnings) == 3
    assert re_step(warnings[0]) == "step 1 was not written: [Errno 28] No space left on device; training goes on"
    assert len(calls) == 8  # the clock went on, and each later save was tried
    seconds = [line["seconds"] for line in read_metrics(out / "metrics.jsonl")]
    assert seconds == sorted(seconds) and seconds[-1] > seconds[0]
    assert all(line["tokens_per_second"] > 0 for line in read_metrics(out / "metrics.jsonl") if "loss" in line)
    assert_same_run(out, unbroken_short)


def re_step(warning: str) -> str:
    return warning[warning.index("step ") :]


def test_a_full_disk_at_the_last_save_ends_the_run_and_it_goes_on_later(
    tmp_path, short, corpus, monkeypatch, unbroken_short
):
    out = tmp_path / "run"
    save_model = state.save_model

    def fail_at_last(model, folder, *, origin):
        return full_disk() if origin["step"] >= 6 else save_model(model, folder, origin=origin)

    monkeypatch.setattr(state, "save_model", fail_at_last)
    with pytest.raises(RunError, match=r"the checkpoint of step 8 was not written: .*No space left"):
        run(short, out, corpus)
    assert RunFolder(out).latest().name == "step-000005"
    assert not any(line.get("final") for line in records(out))
    monkeypatch.undo()
    run(short, out, corpus)
    assert_same_run(out, unbroken_short)


def test_a_full_disk_at_a_line_of_metrics_ends_the_run_with_a_sentence(tmp_path, recipe, corpus, monkeypatch):
    monkeypatch.setattr(Metrics, "write", full_disk)
    with pytest.raises(RunError, match=r"no space left on the disk\. Last good state: none was saved yet\. Free some"):
        run(recipe, tmp_path / "run", corpus)


def test_a_run_killed_in_its_last_evaluation_only_evaluates(tmp_path, recipe, corpus, monkeypatch, unbroken):
    class KilledError(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    out = tmp_path / "run"
    evaluate = session.Session.evaluate
    monkeypatch.setattr(
        session.Session,
        "evaluate",
        lambda self, *, max_tokens, final=False: kill() if final else evaluate(self, max_tokens=max_tokens),
    )
    with pytest.raises(KilledError):
        run(recipe, out, corpus)
    monkeypatch.undo()
    monkeypatch.setattr(session.Session, "train_step", kill)
    run(recipe, out, corpus)
    assert_same_run(out, unbroken)


def test_a_damaged_checkpoint_is_refused_when_the_run_goes_on(tmp_path, unbroken, recipe, corpus):
    out = Path(shutil.copytree(unbroken, tmp_path / "run"))
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(lines[:-1]))  # as if it had not finished
    path = out / "checkpoints" / f"step-{STEPS:06d}" / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(InputError, match=r"optimizer\.safetensors was changed or damaged"):
        run(recipe, out, corpus)
