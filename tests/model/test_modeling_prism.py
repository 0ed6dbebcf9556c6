"""The model against its definition and against its peer, transformers' Llama."""

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.head_schedule import HeadSchedule, ScheduleError
from prism_transformer.model.modeling_prism import PrismForCausalLM, PrismRotaryEmbedding, rotate

from .models import RAGGED, SMALL, ids, make, randomise


@pytest.mark.parametrize("tied", [True, False])
def test_a_uniform_schedule_is_exactly_a_llama(tied):
    prism = randomise(make([6] * 4, tie_word_embeddings=tied))
    llama = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=48,
            intermediate_size=128,
            num_hidden_layers=4,
            num_attention_heads=6,
            vocab_size=101,
            max_position_embeddings=64,
            rms_norm_eps=1e-5,
            tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ).eval()
    llama.load_state_dict(prism.state_dict(), strict=True)
    with torch.no_grad():
        assert (prism(ids()).logits - llama(ids()).logits).abs().max() < 1e-5


def test_attention_of_each_layer_equals_the_definition():
    """softmax(q k^T / sqrt(d_h)) v head by head, written out with explicit loops (paper, section 1)."""
    model = randomise(make(attn_implementation="sdpa"))
    tokens = ids(batch=1, length=9)
    with torch.no_grad():
        x = model.model.embed_tokens(tokens)[0]
        for layer, n_heads in zip(model.model.layers, RAGGED, strict=True):
            k_dim = 48 // n_heads
            h = layer.input_layernorm(x)
            attn = layer.self_attn
            q, k, v = h @ attn.q_proj.weight.T, h @ attn.k_proj.weight.T, h @ attn.v_proj.weight.T
            out = torch.zeros_like(h)
            for head in range(n_heads):
                cut = slice(head * k_dim, (head + 1) * k_dim)
                for t in range(9):
                    q_t = rotate_by_hand(q[t, cut], t)
                    scores = torch.stack([q_t @ rotate_by_hand(k[s, cut], s) for s in range(t + 1)]) / k_dim**0.5
                    out[t, cut] = scores.softmax(0) @ v[: t + 1, cut]
            x = x + out @ attn.o_proj.weight.T
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = model.model.norm(x) @ model.lm_head.weight.T
        assert torch.allclose(model(tokens).logits[0], logits, atol=2e-4)


def test_a_layer_norm_is_by_mean_and_variance():
    model = randomise(make(norm_type="layernorm"))
    for norm in (model.model.layers[0].input_layernorm, model.model.norm):
        x = torch.randn(2, 3, 48)
        deviation = x - x.mean(-1, keepdim=True)
        expected = deviation / (deviation.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
        assert torch.allclose(norm(x), expected, atol=1e-6)


def rotate_by_hand(vector, position):
    """RoPE: the pair (i, i + K/2) turned by position * 10000^(-2i/K)."""
    out, half = vector.clone(), len(vector) // 2
    for i in range(half):
        angle = torch.tensor(position * 10000.0 ** (-2 * i / len(vector)))
        out[i] = vector[i] * angle.cos() - vector[i + half] * angle.sin()
        out[i + half] = vector[i + half] * angle.cos() + vector[i] * angle.sin()
    return out


def test_rope_turns_the_rotated_dimensions_of_each_head_and_leaves_the_others():
    x_BTHK = torch.randn(1, 5, 3, 8, generator=torch.Generator().manual_seed(0))
    tables = PrismRotaryEmbedding(n_heads=3, head_dim=8, rotary_dim=4, theta=10000.0)(
        torch.arange(5)[None], x_BTHK.dtype
    )
    turned_BTHK = rotate(x_BTHK, *tables, 4)
    for t in range(5):
        for head in range(3):
            expected = torch.cat((rotate_by_hand(x_BTHK[0, t, head, :4], t), x_BTHK[0, t, head, 4:]))
            torch.testing.assert_close(turned_BTHK[0, t, head], expected)


def test_training_on_whole_windows_takes_the_causal_kernel_without_a_mask(monkeypatch):
    calls, sdpa = [], F.scaled_dot_product_attention

    def record(*args, **kwargs):
        calls.append((kwargs["attn_mask"], kwargs["is_causal"]))
        return sdpa(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    make().train()(ids(), labels=ids(), use_cache=False).loss.backward()
    assert calls == [(None, True)] * 4


def test_positions_that_start_again_separate_packed_sequences():
    model, tokens = randomise(make()), ids(batch=1, length=14)
    positions = torch.cat((torch.arange(6), torch.arange(8)))[None]
    with torch.no_grad():
        packed = model(tokens, position_ids=positions, use_cache=False).logits
        apart = [model(part, use_cache=False).logits for part in tokens.split((6, 8), dim=1)]
    torch.testing.assert_close(packed, torch.cat(apart, dim=1), atol=1e-4, rtol=1e-4)


def test_gradient_checkpointing_leaves_the_gradients_as_they_are():
    def gradients(*, checkpointing):
        model = randomise(make()).train()
        if checkpointing:  # renamed in transformers 5.24
            (getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable)()
        model(ids(), labels=ids(), use_cache=False).loss.backward()
        return [p.grad for p in model.parameters()]

    for with_, without in zip(gradients(checkpointing=True), gradients(checkpointing=False), strict=True):
        torch.testing.assert_close(with_, without)


@pytest.mark.parametrize("setting", [{"rope_width": "base"}, {"attention_scale": "base"}])
def test_mechanism_settings_leave_a_uniform_model_unchanged_and_change_a_ragged_one(setting):
    def logits(schedule, **settings):
        with torch.no_grad():
            return randomise(make(schedule, **settings))(ids()).logits

    assert torch.equal(logits([6] * 4), logits([6] * 4, **setting))
    assert (logits(RAGGED) - logits(RAGGED, **setting)).abs().max() > 1e-2


def test_attention_scale_base_is_sqrt_of_the_base_head_dim_over_the_head_dim():
    model = make([3, 3, 12, 12], attention_scale="base")  # d_h = 16, 16, 4, 4: scale sqrt(4)/16 and 1/sqrt(4)
    assert [layer.self_attn.scaling for layer in model.model.layers] == [0.125, 0.125, 0.5, 0.5]


def test_heads_as_built_are_the_schedule():
    model = make()
    assert [layer.self_attn.n_heads for layer in model.model.layers] == RAGGED
    assert sorted(model.model.rotary_emb) == ["16", "24", "48", "8"]  # one rotary module per distinct head dim


def test_all_schedules_start_from_identical_tensors():
    first, second = make(RAGGED, seed=5).state_dict(), make([6] * 4, seed=5).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], make(RAGGED, seed=6).state_dict()["lm_head.weight"])


def test_initial_spread_is_gpt2s():
    model = make([8] * 4, hidden_size=256, vocab_size=2000)
    layer = model.model.layers[1]
    assert layer.self_attn.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert layer.self_attn.o_proj.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.03)
    assert layer.mlp.down_proj.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.03)
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("d_model", "layers", "schedule", "millions"),
    [(768, 12, "3x2,6x2,8x2,12x6", 123.6), (1024, 24, "4x3,8x3,16x18", 353.5), (1536, 24, "6x3,12x3,16x18", 756.8)],
)
def test_parameters_are_the_papers(d_model, layers, schedule, millions):
    config = PrismConfig(hidden_size=d_model, num_hidden_layers=layers, head_schedule=schedule, vocab_size=50304)
    with torch.device("meta"):
        count = sum(p.numel() for p in PrismForCausalLM(config).parameters())
    assert round(count / 1e6, 1) == millions


def test_loss_is_the_mean_cross_entropy_of_the_next_token():
    model, tokens = randomise(make()), ids()
    with torch.no_grad():
        logits = model(tokens).logits
        expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        assert model(tokens, labels=tokens).loss.item() == pytest.approx(expected.item(), rel=1e-5)
        shifted = model(tokens[:, :-1], shift_labels=tokens[:, 1:])
        assert shifted.loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert shifted.logits is None
        halved = model(tokens, labels=tokens, num_items_in_batch=2 * 2 * 19).loss
        assert halved.item() == pytest.approx(expected.item() / 2, rel=1e-5)


def test_ignored_labels_do_not_count():
    model, tokens = randomise(make()), ids(batch=1)
    labels = tokens.clone()
    labels[:, 6:] = -100
    with torch.no_grad():
        assert model(tokens, labels=labels).loss.item() == pytest.approx(
            model(tokens[:, :6], labels=tokens[:, :6]).loss.item(), rel=1e-5
        )


def test_padded_rows_are_never_scored_or_sampled():
    model = randomise(make(vocab_size=128, true_vocab_size=101))
    with torch.no_grad():
        logits = model(ids()).logits
        assert torch.isinf(logits[..., 101:]).all() and torch.isfinite(logits[..., :101]).all()
        expected = F.cross_entropy(logits[:, :-1, :101].flatten(0, 1), ids()[:, 1:].flatten())
        assert model(ids(), labels=ids()).loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_implementations_agree_and_return_ragged_weights(attention):
    model = randomise(make(attn_implementation=attention))
    reference = randomise(make(attn_implementation="eager"))
    with torch.no_grad():
        assert (model(ids()).logits - reference(ids()).logits).abs().max() < 1e-4
        weights = reference(ids(), output_attentions=True).attentions
    assert [w.shape for w in weights] == [(2, heads, 20, 20) for heads in RAGGED]


def test_round_trip_through_save_pretrained(tmp_path):
    model = randomise(make())
    model.save_pretrained(tmp_path)
    loaded = PrismForCausalLM.from_pretrained(tmp_path)
    assert str(loaded.config.head_schedule) == "1x1,2x1,3x1,6x1"
    assert '"head_schedule"' not in (tmp_path / "config.json").read_text()
    with torch.no_grad():
        assert torch.equal(loaded(ids()).logits, model(ids()).logits)
    for rotary in loaded.model.rotary_emb.values():  # not saved: must be filled again
        assert isinstance(rotary, PrismRotaryEmbedding)
        assert torch.equal(rotary.inv_freq, rotary.frequencies())


def test_config_refuses_what_cannot_be_built():
    with pytest.raises(ScheduleError, match="odd"):
        PrismConfig(hidden_size=45, num_hidden_layers=2, head_schedule=[3, 3])
    with pytest.raises(ScheduleError, match="norm_type='batch'"):
        PrismConfig(**SMALL, head_schedule=RAGGED, norm_type="batch")
    with pytest.raises(ScheduleError, match="4"):
        PrismConfig(**SMALL, head_schedule=[6, 6, 6])
    with pytest.raises(ScheduleError, match="d_model=96"):
        PrismConfig(**SMALL, head_schedule=HeadSchedule(RAGGED, d_model=96))
    with pytest.raises(ScheduleError, match="only num_attention_heads"):
        PrismConfig(**SMALL, num_attention_heads=6, per_layer_config={0: {"hidden_size": 3}})
    with pytest.raises(ScheduleError, match="both say the heads"):
        PrismConfig(**SMALL, head_schedule=RAGGED, per_layer_config={0: {"num_attention_heads": 2}})
    with pytest.raises(ScheduleError, match="this model has plain RoPE"):
        PrismConfig(
            **SMALL, head_schedule=RAGGED, rope_parameters={"rope_type": "yarn", "factor": 4, "rope_theta": 1e4}
        )
    with pytest.raises(ScheduleError, match="this model has plain RoPE"):
        PrismConfig(**SMALL, head_schedule=RAGGED, rope_scaling={"type": "linear", "factor": 2.0, "rope_theta": 1e4})


def test_config_survives_json_and_keeps_uniform_plain():
    ragged, uniform = PrismConfig(**SMALL, head_schedule=RAGGED), PrismConfig(**SMALL, head_schedule=[6] * 4)
    assert PrismConfig.from_dict(ragged.to_dict()).head_schedule.heads == (1, 2, 3, 6)
    assert "per_layer_config" not in uniform.to_dict()
    assert uniform.num_attention_heads == 6
