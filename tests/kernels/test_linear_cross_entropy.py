"""The chunked loss against its definition, differentiated by hand and by autograd in double precision."""

import pytest
import torch

from prism_transformer.kernels import LOGIT_ROWS
from prism_transformer.kernels import linear_cross_entropy as module
from prism_transformer.kernels.linear_cross_entropy import fusible_losses_and_gradients, linear_cross_entropy
from prism_transformer.model.configuration_prism import PrismConfig
from prism_transformer.model.modeling_prism import PrismForCausalLM, sum_of_token_losses

D, V = 8, 31


@pytest.fixture(params=["of a CPU", "of a GPU"])
def softmax(request, monkeypatch):
    """The form that a GPU compiles computes the same; here it is not compiled."""
    if request.param == "of a GPU":
        monkeypatch.setattr(module, "losses_and_gradients", fusible_losses_and_gradients)


def example(tokens, *, ignored=()):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, tokens // 2, D, generator=generator).requires_grad_()
    weight = torch.randn(V, D, generator=generator).requires_grad_()
    labels = torch.randint(0, V, (2, tokens // 2), generator=generator)
    for position in ignored:
        labels.view(-1)[position] = -100
    return hidden, weight, labels


def definition(hidden, weight, labels):
    """Sum over scored rows of log(sum_v exp(h·w_v)) - h·w_label, and its gradients, in double precision."""
    h, w = (t.detach().double().requires_grad_() for t in (hidden, weight))
    logits = (h.flatten(0, 1) @ w.T)[labels.flatten() != -100]
    scored = labels[labels != -100]
    loss = (logits.exp().sum(-1).log() - logits[torch.arange(len(scored)), scored]).sum()
    return loss.detach(), *torch.autograd.grad(loss, (h, w))


@pytest.mark.usefixtures("softmax")
@pytest.mark.parametrize(
    ("tokens", "ignored"),
    [
        (2, ()),
        (LOGIT_ROWS, ()),
        (LOGIT_ROWS + 2, ()),
        (3 * LOGIT_ROWS, (0, LOGIT_ROWS - 1, LOGIT_ROWS, 700)),
        (LOGIT_ROWS, range(LOGIT_ROWS)),
    ],
    ids=["one row a sequence", "one chunk", "a short last chunk", "ignored labels at the edges", "nothing scored"],
)
def test_loss_and_gradients_are_those_of_the_definition(tokens, ignored):
    hidden, weight, labels = example(tokens, ignored=ignored)
    expected, hidden_gradient, weight_gradient = definition(hidden, weight, labels)
    loss = linear_cross_entropy(hidden, weight, labels)
    (3 * loss).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), 3 * hidden_gradient, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weight.grad.double(), 3 * weight_gradient, atol=1e-4, rtol=1e-5)


@pytest.mark.usefixtures("softmax")
@pytest.mark.parametrize("loss", [linear_cross_entropy, sum_of_token_losses])
def test_rows_that_pad_the_vocabulary_take_no_part(loss):
    hidden, weight, labels = example(6)
    expected, _, weight_gradient = definition(hidden, weight, labels)
    padded = torch.cat((weight.detach(), torch.full((5, D), 3.0))).requires_grad_()
    found = loss(hidden, padded, labels, V)
    found.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(padded.grad[:V].double(), weight_gradient, atol=1e-5, rtol=1e-5)
    assert not padded.grad[V:].any()


def test_a_label_of_almost_no_probability_keeps_its_loss():
    hidden, weight = torch.tensor([[[200.0]]]), torch.tensor([[1.0], [0.0]])
    assert linear_cross_entropy(hidden, weight, torch.tensor([[1]])).item() == pytest.approx(200.0)


def test_the_logits_of_all_tokens_are_never_kept():
    hidden, weight, labels = example(8 * LOGIT_ROWS)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        linear_cross_entropy(hidden, weight, labels)
    assert kept and max(kept) <= max(hidden.numel(), weight.numel())


def test_without_gradients_the_loss_is_the_same():
    hidden, weight, labels = example(LOGIT_ROWS + 2, ignored=[5])
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, labels)
    assert not loss.requires_grad
    assert loss.item() == linear_cross_entropy(hidden, weight, labels).item()


def test_autocast_takes_the_products_in_bfloat16_and_gives_gradients_in_fp32():
    hidden, weight, labels = example(LOGIT_ROWS + 2)
    expected, hidden_gradient, weight_gradient = definition(hidden, weight, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, labels)
    loss.backward()
    assert loss.dtype == hidden.grad.dtype == weight.grad.dtype == torch.float32
    assert loss.item() != pytest.approx(expected.item(), rel=1e-7)  # it did round
    assert loss.item() == pytest.approx(expected.item(), rel=2e-2)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient, atol=0.05, rtol=0.05)
    torch.testing.assert_close(weight.grad.double(), weight_gradient, atol=0.3, rtol=0.05)


def test_a_tied_model_with_padded_rows_trains_alike_with_either_loss():
    def gradients(loss=None):
        torch.manual_seed(0)
        model = PrismForCausalLM(
            PrismConfig(hidden_size=16, num_hidden_layers=1, head_schedule=[2], vocab_size=40, true_vocab_size=31)
        )
        model.loss_function_of_hidden = loss or model.loss_function_of_hidden
        tokens = torch.randint(0, 31, (4, 9), generator=torch.Generator().manual_seed(1))
        model(tokens[:, :-1], shift_labels=tokens[:, 1:], num_items_in_batch=32).loss.backward()
        return {name: p.grad for name, p in model.named_parameters()}

    plain, chunked = gradients(), gradients(linear_cross_entropy)
    for name in plain:
        torch.testing.assert_close(chunked[name], plain[name], atol=1e-7, rtol=1e-5)
    assert not chunked["model.embed_tokens.weight"][31:].any()
