"""A saved model comes back as it was, or is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from prism_transformer.checkpoint import golden_ids, golden_logits, load_model, quiet_transformers, save_model
from prism_transformer.errors import DivergedError, InputError
from prism_transformer.files import checksums
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM

RAGGED = [1, 2, 3, 6]
FILES = [
    "config.json",
    "configuration_prism.py",
    "generation_config.json",
    "golden.safetensors",
    "head_schedule.py",
    "identity.json",
    "model.safetensors",
    "modeling_prism.py",
]


def make(**settings: object) -> PrismForCausalLM:
    torch.manual_seed(0)
    small = {"hidden_size": 48, "num_hidden_layers": 4, "vocab_size": 64, "head_schedule": RAGGED}
    model = PrismForCausalLM(PrismConfig(**small | settings))
    with torch.no_grad():  # far from the start, where attention is nearly uniform and the schedule hardly shows
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "saved"
    save_model(make(), folder, origin={"step": 7})
    return folder


@pytest.fixture
def saved(saved_once, tmp_path) -> Path:
    return Path(shutil.copytree(saved_once, tmp_path / "saved"))


def edit_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def sign_again(folder: Path) -> None:
    """What somebody who changes a file on purpose would do: make the sums right again."""
    identity = json.loads((folder / "identity.json").read_text())
    identity["sha256"] = checksums(path for path in folder.iterdir() if path.name != "identity.json")
    (folder / "identity.json").write_text(json.dumps(identity))


@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": False}, {"vocab_size": 64, "true_vocab_size": 61}])
def test_every_tensor_comes_back_bit_for_bit(tmp_path, settings):
    model = make(**settings)
    save_model(model, tmp_path / "m", origin={})
    loaded = load_model(tmp_path / "m")
    assert loaded.config.head_schedule == model.config.head_schedule
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_loaded_weights_lie_where_torch_would_have_put_them(saved):
    """Products depend in their last digit on the alignment of their factors, and so would a run that goes on."""
    assert {parameter.data_ptr() % 64 for parameter in load_model(saved).parameters()} == {0}


def test_a_tied_embedding_is_stored_once_and_tied_again(saved):
    with safe_open(saved / "model.safetensors", framework="pt") as file:
        assert "model.embed_tokens.weight" in file.keys()  # noqa: SIM118 - not a mapping
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    loaded = load_model(saved)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_the_folder_holds_safetensors_json_and_the_code_and_nothing_pickled(saved):
    assert sorted(path.name for path in saved.iterdir()) == FILES
    for path in saved.glob("*.safetensors"):
        assert load_file(path)


def test_the_identity_names_schedule_origin_and_every_file(saved):
    identity = json.loads((saved / "identity.json").read_text())
    assert identity["head_schedule"] == "1x1,2x1,3x1,6x1"
    assert identity["fingerprint"] == make().config.head_schedule.fingerprint
    assert (identity["d_model"], identity["step"]) == (48, 7)
    assert sorted(identity["sha256"]) == [name for name in FILES if name != "identity.json"]


def test_golden_logits_are_what_the_model_answers_to_16_tokens(saved):
    model = make()
    golden = load_file(saved / "golden.safetensors")
    assert golden["ids"].shape == (1, 16)
    assert golden["ids"].min() >= 0 and golden["ids"].max() < 64
    with torch.no_grad():
        assert torch.equal(golden["logits"], model.eval()(golden["ids"]).logits[0])


def test_golden_logits_of_another_precision_are_computed_in_fp32():
    model = make()
    expected = golden_logits(model)
    half = make().to(torch.bfloat16)
    found = golden_logits(half)
    assert found.dtype == torch.float32
    assert half.dtype == torch.bfloat16
    assert (found - expected).abs().max() < 0.5  # the weights were rounded, the products were not
    rounded = make().to(torch.bfloat16).to(torch.float32)
    assert torch.equal(found, golden_logits(rounded))


def test_golden_ids_stay_inside_a_padded_vocabulary():
    config = make(vocab_size=64, true_vocab_size=5).config
    assert golden_ids(config).max() < 5


@pytest.mark.parametrize("mode", [True, False])
def test_saving_and_loading_leave_mode_random_numbers_and_weights_as_they_were(tmp_path, mode):
    model = make().train(mode)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    save_model(model, tmp_path / "m", origin={})
    load_model(tmp_path / "m")
    assert torch.equal(torch.rand(3), expected)
    assert all(module.training == mode for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_saving_and_loading_print_nothing(tmp_path, capfd):
    save_model(make(), tmp_path / "m", origin={})
    load_model(tmp_path / "m")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("enabled", [True, False])
def test_progress_bars_are_left_as_they_were(enabled):
    try:
        (transformers_logging.enable_progress_bar if enabled else transformers_logging.disable_progress_bar)()
        with quiet_transformers():
            assert not transformers_logging.is_progress_bar_enabled()
        assert transformers_logging.is_progress_bar_enabled() == enabled
    finally:
        transformers_logging.enable_progress_bar()


def test_an_edited_schedule_is_refused_with_both(saved):
    edit_config(saved, num_attention_heads=6, per_layer_config=None)
    with pytest.raises(InputError, match=r"head schedule 6x4, but the weights were trained with 1x1,2x1,3x1,6x1"):
        load_model(saved)


def test_an_edited_schedule_is_refused_though_the_sums_were_made_right(saved):
    edit_config(saved, num_attention_heads=6, per_layer_config=None)
    sign_again(saved)
    with pytest.raises(InputError, match="6x4"):
        load_model(saved)


def test_golden_logits_refuse_another_schedule_whose_identity_was_edited_too(saved):
    """Strict keys and shapes fit any schedule; only the answers differ."""
    edit_config(saved, num_attention_heads=6, per_layer_config=None)
    identity = json.loads((saved / "identity.json").read_text())
    identity["fingerprint"] = make(head_schedule=[6] * 4).config.head_schedule.fingerprint
    (saved / "identity.json").write_text(json.dumps(identity))
    sign_again(saved)
    with pytest.raises(InputError, match="golden logits differ by"):
        load_model(saved)


@pytest.mark.parametrize(
    "edit", [{"rope_parameters": {"rope_type": "default", "rope_theta": 10001.0}}, {"rms_norm_eps": 2e-5}]
)
def test_an_edited_setting_is_refused_though_it_hardly_shows(saved, edit):
    edit_config(saved, **edit)
    with pytest.raises(InputError, match=r"config\.json was changed or damaged"):
        load_model(saved)


def test_an_identity_without_sums_is_refused(saved):
    """Else every file would do whose logits hardly move."""
    identity = json.loads((saved / "identity.json").read_text())
    del identity["sha256"]
    (saved / "identity.json").write_text(json.dumps(identity))
    with pytest.raises(InputError, match="has no sha256 of the other files"):
        load_model(saved)


@pytest.mark.parametrize("heads", [5, 7, "six"])
def test_a_schedule_that_cannot_be_is_refused(saved, heads):
    edit_config(saved, num_attention_heads=heads)
    with pytest.raises(InputError, match=r"saved: config\.json cannot be used"):
        load_model(saved)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("config.json", "identity.json")])
def test_one_flipped_bit_in_any_file_is_refused(saved, name):
    """The last byte of the weights is the high byte of one number, its lowest bit: no golden logit shows it."""
    path = saved / name
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{name} was changed or damaged"):
        load_model(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "golden.safetensors"])
@pytest.mark.parametrize("size", [0, 5, 1000])
def test_a_truncated_file_is_refused(saved, name, size):
    (saved / name).write_bytes((saved / name).read_bytes()[:size])
    with pytest.raises(InputError, match=f"{name} was changed or damaged"):
        load_model(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(saved, name):
    (saved / name).unlink()
    with pytest.raises(InputError, match=name):
        load_model(saved)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match=r"identity\.json cannot be read: No such file"):
            load_model(folder)


def test_a_model_that_has_diverged_is_not_saved(tmp_path):
    model = make()
    with torch.no_grad():
        model.model.layers[2].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(DivergedError, match="not finite"):
        save_model(model, tmp_path / "m", origin={})
    assert not (tmp_path / "m").exists()


def test_weights_of_a_compiled_model_have_plain_names(tmp_path):
    model = make()
    for layer in model.model.layers:
        layer.compile(backend="eager")
    save_model(model, tmp_path / "m", origin={})
    assert load_file(tmp_path / "m" / "model.safetensors").keys() == make().state_dict().keys() - {"lm_head.weight"}
    load_model(tmp_path / "m")


def test_weights_that_lack_a_tensor_are_refused(saved):
    """transformers would fill the gap with random numbers and a warning."""
    tensors = load_file(saved / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    save_file(tensors, saved / "model.safetensors", metadata={"format": "pt"})
    sign_again(saved)
    with pytest.raises(InputError, match="golden logits differ"):
        load_model(saved)
