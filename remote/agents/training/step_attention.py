"""The drafter's attention over its own earlier draft steps, in blocks of queries: its memory grows with T, not with T * T.

Shapes: B rows, T tokens a row, d columns of a head's query and key, e of its value, kv key-value heads that each serve g query heads. The
scheme is FlashAttention-2's (arXiv:2307.08691, algorithms 1 and 2): kept are the output and the logarithm of each query's normaliser, and
the backward pass computes the scores anew; a block of queries sees only the keys before its end.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_BLOCK = 256
"""Queries whose scores exist together."""


@dataclass(frozen=True)
class _Queries:
    """Queries `start` to `stop` [B, kv, g, b, d] in float or half precision, already multiplied by the scale."""

    start: int
    stop: int
    states: Tensor

    def against(self, keys: Tensor) -> Tensor:
        """Masked scores float32 [B, kv, g, b, stop] of the first draft step's keys [B, kv, T, d]."""
        rows = self.states.flatten(2, 3) @ keys[:, :, : self.stop].transpose(-1, -2)
        scores = rows.unflatten(2, self.states.shape[2:4]).float()
        size = self.stop - self.start
        future = torch.ones(size, size, dtype=torch.bool, device=scores.device).triu(1)
        scores[..., self.start :].masked_fill_(future, float("-inf"))
        return scores

    def beside(self, keys: Tensor) -> Tensor:
        """Scores float32 [B, kv, g, b, 1] of a later step's keys, each query against the one at its own index."""
        return (self.states * keys[:, :, None, self.start : self.stop]).sum(-1, keepdim=True).float()


def _blocks(query: Tensor, scale: float) -> list[_Queries]:
    length = query.shape[3]
    starts = range(0, length, _BLOCK)
    stops = [min(start + _BLOCK, length) for start in starts]
    return [
        _Queries(start, stop, query[:, :, :, start:stop] * scale) for start, stop in zip(starts, stops, strict=True)
    ]


class _StepAttention(torch.autograd.Function):
    """The scale, the query [B, kv, g, T, d], and of every step the keys [B, kv, T, d], then the values [B, kv, T, e] -> [B, kv, g, T, e]."""

    @staticmethod
    def forward(ctx: Any, scale: float, query: Tensor, *keys_and_values: Tensor) -> Tensor:  # noqa: ANN401 - torch gives it any attribute
        steps = len(keys_and_values) // 2
        keys, values = keys_and_values[:steps], keys_and_values[steps:]
        ctx.scale = scale
        out = query.new_empty(*query.shape[:-1], values[0].shape[-1])
        normaliser = torch.empty(*query.shape[:-1], 1, dtype=torch.float32, device=query.device)
        for block in _blocks(query, scale):
            scores = torch.cat([block.against(keys[0]), *(block.beside(key) for key in keys[1:])], dim=-1)
            place = (..., slice(block.start, block.stop), slice(None))
            normaliser[place] = scores.logsumexp(-1, keepdim=True)
            weights = scores.sub_(normaliser[place]).exp_().to(query.dtype)
            first = weights[..., : block.stop].flatten(2, 3) @ values[0][:, :, : block.stop]
            attended = first.unflatten(2, block.states.shape[2:4])
            for step, value in enumerate(values[1:]):
                attended += weights[..., block.stop + step, None] * value[:, :, None, block.start : block.stop]
            out[place] = attended
        ctx.save_for_backward(query, out, normaliser, *keys_and_values)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        query, out, normaliser, *keys_and_values = ctx.saved_tensors
        steps = len(keys_and_values) // 2
        keys, values = keys_and_values[:steps], keys_and_values[steps:]
        scale: float = ctx.scale
        grad_query = torch.empty_like(query)
        grad_keys, grad_values = ([torch.zeros_like(state) for state in states] for states in (keys, values))
        shared = (grad * out).sum(-1, keepdim=True).float()
        for block in _blocks(query, scale):
            start, stop = block.start, block.stop
            place = (..., slice(start, stop), slice(None))
            heads = block.states.shape[2:4]
            grad_block = grad[place]
            flat_grad = grad_block.flatten(2, 3)
            weights = block.against(keys[0]).sub_(normaliser[place]).exp_()
            grad_values[0][:, :, :stop] += weights.to(query.dtype).flatten(2, 3).transpose(-1, -2) @ flat_grad
            wanted = (flat_grad @ values[0][:, :, :stop].transpose(-1, -2)).unflatten(2, heads)
            grad_scores = weights.mul_(wanted.float().sub_(shared[place])).to(query.dtype).flatten(2, 3)
            grad_keys[0][:, :, :stop] += grad_scores.transpose(-1, -2) @ block.states.flatten(2, 3)
            grad_states = (grad_scores @ keys[0][:, :, :stop]).unflatten(2, heads)
            for step in range(1, steps):
                key, value = keys[step][:, :, None, start:stop], values[step][:, :, None, start:stop]
                weight = block.beside(keys[step]).sub_(normaliser[place]).exp_()
                wanted = (grad_block * value).sum(-1, keepdim=True).float()
                grad_score = (weight * (wanted - shared[place])).to(query.dtype)
                grad_states += grad_score * key
                grad_keys[step][:, :, start:stop] = (grad_score * block.states).sum(2)
                grad_values[step][:, :, start:stop] = (weight.to(query.dtype) * grad_block).sum(2)
            grad_query[place] = grad_states * scale
        return None, grad_query, *grad_keys, *grad_values


def attend(query: Tensor, keys: list[Tensor], values: list[Tensor], scale: float) -> Tensor:
    """Attention of draft step k = `len(keys)` - 1: causal over step 0, and over the own index of each later step.

    `query` [B, heads, T, d]; of every step so far keys [B, kv_heads, T, d] and values [B, kv_heads, T, e]; scores times `scale`, softmax
    in float32. Returns [B, heads, T, e]; equal to SpecForge 0.2.0's cached attention (`llama3_eagle.py`).
    """
    grouped = query.unflatten(1, (keys[0].shape[1], -1))
    return _StepAttention.apply(scale, grouped, *keys, *values).flatten(1, 2)
