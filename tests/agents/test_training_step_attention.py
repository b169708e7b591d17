"""Attention in blocks against the same written out with every score at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from remote.agents.training import step_attention
from remote.agents.training.step_attention import attend

SCALE = 0.3


def written_out(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    groups = query.shape[1] // keys[0].shape[1]
    keys = [key.repeat_interleave(groups, dim=1) for key in keys]
    values = [value.repeat_interleave(groups, dim=1) for value in values]
    length, scale = query.shape[2], SCALE
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (query @ keys[0].transpose(-1, -2) * scale).masked_fill(future, float("-inf"))
    weights = torch.cat([scores, *((query * key).sum(-1, keepdim=True) * scale for key in keys[1:])], -1).softmax(-1)
    return weights[..., :length] @ values[0] + sum(
        weights[..., length + step, None] * value for step, value in enumerate(values[1:])
    )


def states(source: torch.Generator, rows: int, heads: int, tokens: int, dtype: torch.dtype, columns: int = 8) -> Tensor:
    return torch.randn(rows, heads, tokens, columns, generator=source, dtype=dtype).requires_grad_()


@given(
    rows=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    groups=st.integers(1, 3),
    tokens=st.integers(1, 13),
    steps=st.integers(1, 4),
    block=st.integers(1, 14),
    columns=st.sampled_from([8, 5]),
    seed=st.integers(0, 1 << 30),
)
def test_outputs_and_gradients_are_those_of_all_scores_at_once(
    rows, kv_heads, groups, tokens, steps, block, columns, seed
):
    source = torch.Generator().manual_seed(seed)
    query = states(source, rows, kv_heads * groups, tokens, torch.float64)
    keys = [states(source, rows, kv_heads, tokens, torch.float64) for _ in range(steps)]
    values = [states(source, rows, kv_heads, tokens, torch.float64, columns) for _ in range(steps)]
    expected = written_out(query, keys, values)
    grad = torch.randn(expected.shape, generator=source, dtype=torch.float64)
    inputs = [query, *keys, *values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_attention, "_BLOCK", block)
        found = attend(query, keys, values, SCALE)
        grads = torch.autograd.grad(found, inputs, grad)
    # The softmax is float32 whatever the states are.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(grads, torch.autograd.grad(expected, inputs, grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_half_precision_stays_within_its_own_rounding():
    source = torch.Generator().manual_seed(3)
    query = states(source, 1, 4, 300, torch.float32)
    keys = [states(source, 1, 2, 300, torch.float32) for _ in range(3)]
    values = [states(source, 1, 2, 300, torch.float32) for _ in range(3)]
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in (query, *keys, *values)]
    found = attend(half[0], half[1:4], half[4:], SCALE)
    found.float().square().sum().backward()
    expected = written_out(query, keys, values)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    grads = torch.autograd.grad(expected.square().sum(), [query, *keys, *values])
    for mine, theirs in zip(half, grads, strict=True):
        torch.testing.assert_close(mine.grad.float(), theirs, rtol=0.1, atol=0.15)
