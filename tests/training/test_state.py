"""The run folder: one process at a time, one recipe, and checkpoints that are whole or not there."""

import errno
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from prism_transformer import files
from prism_transformer.errors import InputError, RunError
from prism_transformer.files import checksums, read_json, verify
from prism_transformer.training import state
from prism_transformer.training.build import new_model
from prism_transformer.training.device import choose_device
from prism_transformer.training.optimizer import make_optimizer
from prism_transformer.training.origin import Origin
from prism_transformer.training.parallel import ParallelModel, optimizer_tensors, restore_optimizer
from prism_transformer.training.recipe import with_training
from prism_transformer.training.run_lock import locked
from prism_transformer.training.state import Position, RunFolder
from prism_transformer.training.world import World

from .runs import RECIPE

DATA = "fingerprint-of-the-data"
ORIGIN = Origin(RECIPE, DATA, "bytes (123456)", {"train_000000.bin": "aa", "validation_000000.bin": "bb"})
KEEPING = ("recipe",)  # the tests save with other numbers of checkpoints to keep
CHECKPOINT_FILES = ["golden.safetensors", "identity.json", "model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.fixture
def parts(recipe, corpus):
    """A model and its optimizer after one step with made-up gradients."""
    model = new_model(recipe, corpus)
    optimizer = make_optimizer(model, recipe.optimizer)
    draw = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw)
    optimizer.step()
    return model, optimizer


def alone(model) -> ParallelModel:
    return ParallelModel(model, "one", choose_device(RECIPE.device), World())


def save(folder: RunFolder, parts, step: int, keep: int = 9) -> Path:
    model, optimizer = parts
    position = Position(step, 2.5 * step, (0.1 + 0.2,), 1.5)
    origin = replace(ORIGIN, recipe=with_training(ORIGIN.recipe, keep=keep))
    return folder.save(model, optimizer_tensors(alone(model), optimizer), position, origin=origin)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


# The settings


def test_a_new_run_records_recipe_versions_and_data(tmp_path, recipe):
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["environment.json", "recipe.yaml"]
    environment = read_json(tmp_path / "environment.json")
    assert environment["data_fingerprint"] == DATA
    assert environment["versions"]["torch"] == torch.__version__
    run.accept(ORIGIN)


def test_other_settings_are_refused_with_both_values(tmp_path, recipe):
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    before = tree(tmp_path)
    changed = replace(with_training(recipe, seed=3), optimizer=replace(recipe.optimizer, lr=0.5))
    with pytest.raises(InputError) as caught:
        run.accept(replace(ORIGIN, recipe=changed))
    assert str(caught.value).splitlines()[1:] == [
        "  optimizer.lr: 0.01 -> 0.5",
        "  training.seed: 0 -> 3",
        "  to go on with it all the same, add --allow recipe",
    ]
    assert tree(tmp_path) == before


def test_other_data_are_refused_and_moved_data_are_the_same(tmp_path, recipe):
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    moved = replace(recipe, data=replace(recipe.data, paths=("elsewhere",)))
    run.accept(replace(ORIGIN, recipe=moved))
    with pytest.raises(InputError) as caught:
        run.accept(Origin(replace(recipe, data=replace(recipe.data, vocab_size=777)), "another"))
    assert str(caught.value).splitlines()[1:] == [
        "  data.vocab_size: 4096 -> 777",
        f"  data.fingerprint: {DATA} -> another",
        "  to go on with it all the same, add --allow data",
    ]


def test_a_recipe_that_lacks_a_setting_has_its_default(tmp_path, recipe):
    """Of an earlier version, which had one setting less."""
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    path = tmp_path / "recipe.yaml"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "rope_theta" not in line))
    run.accept(ORIGIN)


def test_a_run_that_was_killed_between_its_first_two_files_goes_on(tmp_path, recipe):
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    (tmp_path / "environment.json").unlink()
    with locked(run.path):
        run.accept(ORIGIN)
    assert read_json(tmp_path / "environment.json")["data_fingerprint"] == DATA


def test_a_damaged_recipe_is_named(tmp_path, recipe):
    run = RunFolder(tmp_path)
    run.accept(ORIGIN)
    (tmp_path / "recipe.yaml").write_text("training: {sed: 3}")
    with pytest.raises(InputError, match=r"recipe\.yaml\.training: no setting 'sed'; did you mean 'seed'"):
        run.accept(ORIGIN)


# Checkpoints


def test_everything_comes_back_bit_for_bit(tmp_path, parts, recipe):
    model, optimizer = parts
    run = RunFolder(tmp_path)
    assert save(run, parts, 7) == run.latest() == tmp_path / "checkpoints" / "step-000007"
    loaded, tensors, position, _ = run.load(run.latest(), ORIGIN, KEEPING)
    assert position == Position(7, 17.5, (0.1 + 0.2,), 1.5)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    fresh = make_optimizer(loaded, recipe.optimizer)
    restore_optimizer(alone(loaded), fresh, tensors)
    values = [value for state_of_one in fresh.state.values() for value in state_of_one.values()]
    assert {value.data_ptr() % 64 for value in values} == {0}  # at another alignment AdamW may round otherwise
    before, after = optimizer_tensors(alone(model), optimizer), optimizer_tensors(alone(loaded), fresh)
    assert before.keys() == after.keys()
    assert len(before) == 3 * len(list(model.parameters()))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_checkpoint_holds_no_pickle(tmp_path, parts):
    folder = save(RunFolder(tmp_path), parts, 1)
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json", ".py"}
    source = Path(state.__file__).parents[1]
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in ("torch.load(", "torch.save(", "import pickle")), path


def test_the_oldest_are_pruned_and_the_latest_never(tmp_path, parts):
    run = RunFolder(tmp_path)
    for step in (1, 2, 3):
        save(run, parts, step, keep=2)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["latest", "step-000002", "step-000003"]
    (run.checkpoints / "latest").write_text("step-000002")  # by hand: to go on from there
    run.prune(1)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["latest", "step-000002", "step-000003"]


def test_a_million_steps_are_newer_than_less(tmp_path, parts):
    run = RunFolder(tmp_path)
    save(run, parts, 999_999, keep=2)
    save(run, parts, 1_000_000, keep=1)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["latest", "step-1000000"]


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, parts, monkeypatch):
    """A power failure may keep a rename and lose what was written before it, unless that was synced."""
    run, events = RunFolder(tmp_path), []
    sync, rename, write_text = files.sync_file, Path.rename, state.write_text
    monkeypatch.setattr(files, "sync_file", lambda file: (events.append(file.name), sync(file)))
    monkeypatch.setattr(files, "sync_folder", lambda folder: events.append("the folder"))
    monkeypatch.setattr(Path, "rename", lambda a, b: (events.append("rename"), rename(a, b)))
    monkeypatch.setattr(state, "write_text", lambda path, text: (events.append(path.name), write_text(path, text)))
    folder = save(run, parts, 4)
    names = sorted(path.name for path in folder.iterdir())
    renamed = events.index("rename")
    assert sorted(events[renamed - 1 - len(names) : renamed - 1]) == names
    assert events[renamed - 1 : renamed + 2] == ["the folder", "rename", "latest"]


def test_a_step_that_is_saved_again_replaces_the_old_one(tmp_path, parts):
    run = RunFolder(tmp_path)
    save(run, parts, 4)
    (run.checkpoints / "step-000004" / "model.safetensors").write_bytes(b"damaged")
    save(run, parts, 4)
    run.load(run.latest(), ORIGIN, KEEPING)


def test_what_killed_saves_left_is_ignored_and_removed_by_the_next(tmp_path, parts):
    run = RunFolder(tmp_path)
    save(run, parts, 4)
    half = run.checkpoints / ".step-000005.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (run.checkpoints / ".latest.17.tmp").write_text("step-0000")
    assert run.latest().name == "step-000004"
    run.load(run.latest(), ORIGIN, KEEPING)
    save(run, parts, 6)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["latest", "step-000004", "step-000006"]


def fail_with(error: Exception):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def unwritable(tensors, path) -> None:
    """safetensors' own error, which is no OSError."""
    save_file(tensors, Path(path).parent / "absent" / "file")


@pytest.mark.parametrize(
    ("target", "replacement"),
    [
        ("save_model", fail_with(OSError(errno.ENOSPC, "No space left on device"))),
        ("save_file", unwritable),
        ("write_json", fail_with(OSError(errno.ENOSPC, "No space left on device"))),
        ("settle", fail_with(OSError(errno.EIO, "Input/output error"))),
        ("write_text", fail_with(OSError(errno.ENOSPC, "No space left on device"))),
    ],
)
def test_a_save_that_fails_leaves_the_one_before(tmp_path, parts, monkeypatch, target, replacement):
    run = RunFolder(tmp_path)
    save(run, parts, 4, keep=1)
    monkeypatch.setattr(state, target, replacement)
    with pytest.raises(RunError, match="the checkpoint of step 5 was not written: "):
        save(run, parts, 5, keep=1)
    assert run.latest().name == "step-000004"
    assert not list(run.checkpoints.glob(".*"))
    monkeypatch.undo()
    run.load(run.latest(), ORIGIN, KEEPING)
    save(run, parts, 6, keep=1)
    assert run.latest().name == "step-000006"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_killed_at_any_moment_of_a_save_the_latest_is_whole(tmp_path, parts):
    """kill -9 at the n-th time that Python touches a file."""
    run = RunFolder(tmp_path)
    save(run, parts, 1, keep=1)
    killed = 0
    for moment in range(0, 1000, 4):
        child = os.fork()
        if child == 0:
            _save_and_die(run, parts, step=2 + moment, moment=moment)
        _, status = os.waitpid(child, 0)
        latest = run.latest()
        sums = read_json(latest / "state.json")["sha256"] | read_json(latest / "identity.json")["sha256"]
        verify(latest, sums)
        if not os.WIFSIGNALED(status):
            break
        killed += 1
    assert os.WEXITSTATUS(status) == 0
    assert killed > 10
    assert latest.name == f"step-{2 + moment:06d}"
    run.load(latest, ORIGIN, KEEPING)


def _save_and_die(run: RunFolder, parts, *, step: int, moment: int) -> None:
    left = moment

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        torch.set_num_threads(1)
        sys.addaudithook(hook)
        save(run, parts, step, keep=1)
        code = 0
    finally:
        os._exit(code)


# Damage


@pytest.mark.parametrize("name", CHECKPOINT_FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_checkpoint_is_refused_with_the_way_out(tmp_path, parts, name, damage):
    run = RunFolder(tmp_path)
    save(run, parts, 3)
    path = save(run, parts, 4) / name
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as caught:
        run.load(run.latest(), ORIGIN, KEEPING)
    assert caught.value.problems[-1].startswith("to go on from step-000003, write that name into ")
    (run.checkpoints / "latest").write_text("step-000003\n")
    assert run.load(run.latest(), ORIGIN, KEEPING)[2].step == 3


def test_an_edited_step_is_refused(tmp_path, parts):
    path = save(RunFolder(tmp_path), parts, 4) / "state.json"
    path.write_text(path.read_text().replace('"step": 4', '"step": 5'))
    with pytest.raises(InputError, match=r"state\.json: step 5, but identity\.json says 4"):
        RunFolder(tmp_path).load(path.parent, ORIGIN, KEEPING)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"step": "four"}, "step='four' must be a whole number"),
        ({"speed": 1}, "no setting 'speed'"),
        ({"sha256": {}}, "changed"),
    ],
)
def test_an_edited_state_is_refused(tmp_path, parts, edit, message):
    path = save(RunFolder(tmp_path), parts, 4) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(InputError, match=message):
        RunFolder(tmp_path).load(path.parent, ORIGIN, KEEPING)


def test_an_edited_schedule_is_refused_with_both(tmp_path, parts):
    folder = save(RunFolder(tmp_path), parts, 4)
    config = json.loads((folder / "config.json").read_text())
    config |= {"per_layer_config": None, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="head schedule 4x2, but the weights were trained with 1x1,4x1"):
        RunFolder(tmp_path).load(folder, ORIGIN, KEEPING)


def test_a_checkpoint_of_other_data_is_refused_with_both(tmp_path, parts):
    folder = save(RunFolder(tmp_path), parts, 4)
    with pytest.raises(InputError, match=f"data.fingerprint: {DATA} -> swapped"):
        RunFolder(tmp_path).load(folder, replace(ORIGIN, data_fingerprint="swapped"))


def test_a_latest_that_names_no_checkpoint_is_refused(tmp_path, parts):
    run = RunFolder(tmp_path)
    save(run, parts, 4)
    (run.checkpoints / "latest").write_text("step-000009")
    with pytest.raises(InputError, match=r"step-000009/state\.json cannot be read") as caught:
        run.load(run.latest(), ORIGIN, KEEPING)
    assert "step-000004" in caught.value.problems[-1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop("model.norm.weight:exp_avg_sq"), r"has no exp_avg_sq of model\.norm\.weight"),
        (lambda tensors: tensors.update({"model.norm.weight:exp_avg": torch.ones(3)}), r"has the shape \(3,\), not"),
    ],
)
def test_an_optimizer_of_another_model_is_refused(tmp_path, parts, edit, message):
    folder = save(RunFolder(tmp_path), parts, 4)
    tensors = load_file(folder / "optimizer.safetensors")
    edit(tensors)
    save_file(tensors, folder / "optimizer.safetensors")
    text = read_json(folder / "state.json")
    text["sha256"] = checksums([folder / "optimizer.safetensors", folder / "identity.json"])
    (folder / "state.json").write_text(json.dumps(text))
    with pytest.raises(InputError, match=message):
        RunFolder(tmp_path).load(folder, ORIGIN, KEEPING)


def test_a_folder_without_checkpoints_has_no_latest(tmp_path):
    assert RunFolder(tmp_path).latest() is None
    assert RunFolder(tmp_path).final_record() is None
