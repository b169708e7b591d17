"""The loss in chunks against PyTorch's own over all logits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from remote.agents.training import soft_cross_entropy as module
from remote.agents.training.soft_cross_entropy import soft_cross_entropy


def inputs(count: int, rows: int, seed: int, vocabulary: int = 11, hidden: int = 6):
    source = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, hidden, generator=source).requires_grad_(),
        torch.randn(vocabulary, hidden, generator=source).requires_grad_(),
        torch.randn(rows, vocabulary, generator=source).softmax(-1),
        torch.randint(rows, (count,), generator=source),
        torch.rand(count, generator=source),
    )


@given(count=st.integers(0, 20), rows=st.integers(1, 9), elements=st.integers(1, 300), seed=st.integers(0, 1 << 30))
def test_losses_choices_and_gradients_are_pytorchs(count, rows, elements, seed):
    states, head, probabilities, places, weights = inputs(count, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_ELEMENTS", elements)
        found = soft_cross_entropy(states, head, probabilities, places, weights)
        grads = torch.autograd.grad(found.total * 3, [states, head])
    logits = functional.linear(states, head)
    losses = functional.cross_entropy(logits, probabilities[places], reduction="none")
    torch.testing.assert_close(found.losses, losses.detach(), rtol=1e-5, atol=1e-5)
    assert torch.equal(found.choices, logits.argmax(-1))
    for mine, theirs in zip(grads, torch.autograd.grad((losses * weights).sum() * 3, [states, head]), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_in_half_precision_the_gradients_keep_the_weights_type():
    states, head, probabilities, places, weights = inputs(9, 5, 1)
    expected = torch.autograd.grad(
        soft_cross_entropy(states, head, probabilities, places, weights).total, [states, head]
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = soft_cross_entropy(states, head, probabilities, places, weights)
    grads = torch.autograd.grad(found.total, [states, head])
    assert [grad.dtype for grad in grads] == [torch.float32, torch.float32]
    for mine, theirs in zip(grads, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)


def test_nothing_is_kept_where_no_gradient_is_wanted():
    states, head, probabilities, places, weights = inputs(9, 5, 1)
    with torch.no_grad():
        found = soft_cross_entropy(states, head, probabilities, places, weights)
    assert not found.total.requires_grad
    assert torch.equal(found.losses, soft_cross_entropy(states, head, probabilities, places, weights).losses)
