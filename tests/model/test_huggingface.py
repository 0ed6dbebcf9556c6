"""What Hugging Face's tools ask of a model: loading by remote code, attention functions, compile, Trainer, adapters."""

import subprocess
import sys
import textwrap

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.masking_utils import flash_attention_mask

from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.head_schedule import ScheduleError
from prism_transformer.model.modeling_prism import PrismForCausalLM

from .models import RAGGED, ids, make, randomise


def run_without_the_package(script, tmp_path):
    """Run `script` where prism_transformer cannot be imported, nothing is cached and there is no network."""
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    head = 'import sys\nsys.modules["prism_transformer"] = None\n'
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )


@pytest.mark.slow
def test_a_saved_folder_loads_in_a_process_that_cannot_import_the_package(tmp_path):
    """Tied and untied, and again after that process has saved it."""
    for name in ("tied", "untied"):
        model = randomise(make(tie_word_embeddings=name == "tied"))
        model.save_pretrained(tmp_path / name)
        with torch.no_grad():
            expected = {"logits": model(ids()).logits, "hidden": model.model(ids()).last_hidden_state}
        text = model.generate(ids(length=5), max_new_tokens=8, do_sample=False, pad_token_id=0)
        save_file(expected | {"text": text}, tmp_path / f"{name}.safetensors")
    script = f"""
        import torch
        from safetensors.torch import load_file
        from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
        ids = lambda length: torch.randint(0, 101, (2, length), generator=torch.Generator().manual_seed(1))
        for name in ("tied", "untied"):
            expected = load_file(name + ".safetensors")
            assert AutoConfig.from_pretrained(name, trust_remote_code=True).head_schedule.heads == {tuple(RAGGED)}
            body = AutoModel.from_pretrained(name, trust_remote_code=True).eval()
            assert (body(ids(20)).last_hidden_state - expected["hidden"]).abs().max() < 1e-5
            AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True).save_pretrained("again")
            for folder in (name, "again"):
                model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
                assert (model(ids(20)).logits - expected["logits"]).abs().max() < 1e-5
                text = model.generate(ids(5), max_new_tokens=8, do_sample=False, pad_token_id=0)
                assert torch.equal(text, expected["text"])
    """
    done = run_without_the_package(script, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_code_that_is_not_trusted_is_not_run(tmp_path):
    make().save_pretrained(tmp_path / "m")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "m", trust_remote_code=False)


@pytest.mark.parametrize("change", [{"head_schedule": [6] * 4}, {"per_layer_config": {0: {"num_attention_heads": 2}}}])
def test_another_schedule_for_saved_weights_is_refused_in_a_sentence(tmp_path, change):
    model = make()
    model.save_pretrained(tmp_path)
    for kind in (PrismForCausalLM, PrismConfig):
        with pytest.raises(ScheduleError, match="weights load into any schedule without a word"):
            kind.from_pretrained(tmp_path, **change)
    with pytest.raises(ScheduleError, match="fixed when a configuration is made"):
        model.config.head_schedule = [6] * 4


# Attention functions


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
def test_flex_attention_agrees_and_keeps_padding_out():
    reference, flex = (randomise(make(attn_implementation=name)) for name in ("eager", "flex_attention"))
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[0, :6] = 0
    with torch.compiler.set_stance("force_eager"):  # its kernel is compiled for a minute
        for given in (torch.ones_like(mask), mask):
            difference = flex(ids(), attention_mask=given).logits - reference(ids(), attention_mask=given).logits
            assert difference[given.bool()].abs().max() < 1e-4


@torch.no_grad()
def test_flash_attention_gets_heads_scale_padding_and_positions_of_its_layer():
    """A function with the signature of the flash kernels, whose mask is that of the tokens, not of the pairs."""
    seen = []

    def by_sequence(module, q_BHTK, k_BHSK, v_BHSK, mask_BS, *, scaling, position_ids, dropout=0.0, **kwargs):
        seen.append((q_BHTK.shape[1:], scaling, module.is_causal, position_ids.shape))
        out_BHTK = torch.zeros_like(q_BHTK)
        for row, keep in enumerate(mask_BS.bool()):
            q, k, v = (x[row][:, keep] for x in (q_BHTK, k_BHSK, v_BHSK))
            attend = torch.nn.functional.scaled_dot_product_attention
            out_BHTK[row, :, keep] = attend(q, k, v, scale=scaling, is_causal=True)
        return out_BHTK.transpose(1, 2), None

    AttentionInterface.register("by_sequence", by_sequence)
    AttentionMaskInterface.register("by_sequence", flash_attention_mask)
    model, reference = (randomise(make(attn_implementation=name)) for name in ("by_sequence", "eager"))
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[0, :6] = 0
    difference = model(ids(), attention_mask=mask).logits - reference(ids(), attention_mask=mask).logits
    assert difference[mask.bool()].abs().max() < 1e-4
    assert seen == [((h, 20, 48 // h), pytest.approx((48 // h) ** -0.5), True, (1, 20)) for h in RAGGED]


@torch.no_grad()
def test_hidden_states_are_those_of_a_llama():
    prism = randomise(make([6] * 4))
    config = prism.config.to_dict()
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
            "rms_norm_eps", "tie_word_embeddings", "rope_parameters", "max_position_embeddings")  # fmt: skip
    llama = LlamaForCausalLM(LlamaConfig(**{name: config[name] for name in kept})).eval()
    llama.load_state_dict(prism.state_dict())
    ours, theirs = (model(ids(), output_hidden_states=True).hidden_states for model in (prism, llama))
    assert len(ours) == len(theirs) == 5
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


# Compile


@pytest.mark.parametrize("training", [True, False])
def test_the_whole_model_is_one_graph(training):
    model, graphs = randomise(make()).train(training), []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=count, fullgraph=True)
    with torch.set_grad_enabled(training):
        found, expected = (m(ids(), labels=ids(), use_cache=False).loss for m in (compiled, model))
    assert len(graphs) == 1
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


# Trainer


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = ids(batch=24, length=12)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


def trainer(folder, *callbacks):
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=6, save_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        learning_rate=1e-2, seed=4, report_to=[], disable_tqdm=True, use_cpu=True, logging_steps=1,
        gradient_checkpointing=True,
    )  # fmt: skip
    return Trainer(make(seed=2), arguments, train_dataset=Rows(), callbacks=list(callbacks))


def test_a_resumed_trainer_ends_with_the_weights_of_an_unbroken_one(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.train()
    trainer(tmp_path / "broken", StopAt(3)).train()
    resumed = trainer(tmp_path / "broken")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert not torch.equal(whole.model.lm_head.weight, make(seed=2).lm_head.weight)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name
    saved = PrismForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoint-6")
    assert torch.equal(saved.lm_head.weight, whole.model.lm_head.weight)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[0] == pytest.approx(torch.log(torch.tensor(101.0)).item(), abs=0.3)  # not multiplied by accumulation


# Adapters


def adapted(model, *targets):
    adapter = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=list(targets)))
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, weight in adapter.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return adapter.eval()


@torch.no_grad()
def test_lora_is_saved_loaded_and_merged(tmp_path):
    plain = randomise(make())(ids()).logits
    adapter = adapted(randomise(make()), "q_proj", "v_proj", "down_proj")
    expected = adapter(ids()).logits
    assert (expected - plain).abs().max() > 0.1
    adapter.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(randomise(make()), tmp_path).eval()
    assert torch.equal(loaded(ids()).logits, expected)
    merged = loaded.merge_and_unload()
    assert isinstance(merged, PrismForCausalLM)
    torch.testing.assert_close(merged(ids()).logits, expected, atol=1e-3, rtol=1e-4)


def test_lora_trains_the_adapter_only():
    adapter = adapted(randomise(make()), "q_proj", "o_proj")
    adapter(ids(), labels=ids()).loss.backward()
    for name, weight in adapter.named_parameters():
        assert (weight.grad is not None) == ("lora_" in name), name


@pytest.mark.parametrize("size", [{}, {"vocab_size": 128, "true_vocab_size": 101}])
def test_an_adapter_of_the_head_takes_part_in_the_loss(size):
    adapter = adapted(randomise(make(tie_word_embeddings=False, **size)), "lm_head")
    output = adapter(ids(), labels=ids())
    expected = torch.nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    output.loss.backward()
    assert adapter.base_model.model.lm_head.lora_B.default.weight.grad.abs().max() > 0


# New tokens


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_new_tokens_can_be_added(tied):
    model = randomise(make(tie_word_embeddings=tied))
    before = model(ids()).logits
    model.resize_token_embeddings(110)
    after = model(ids()).logits
    assert after.shape[-1] == model.config.vocab_size == 110
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    torch.testing.assert_close(after[..., :101], before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("new", "multiple", "rows", "true"), [(103, None, 103, None), (103, 64, 128, 103), (None, 64, 128, 101)]
)
@torch.no_grad()
def test_added_tokens_count_and_padding_does_not(new, multiple, rows, true):
    model = randomise(make(vocab_size=112, true_vocab_size=101))
    model.resize_token_embeddings(new, pad_to_multiple_of=multiple)
    assert (model.config.vocab_size, model.config.true_vocab_size) == (rows, true)
    assert model(ids()).logits.isfinite().sum(-1).unique().item() == (new or 101)
