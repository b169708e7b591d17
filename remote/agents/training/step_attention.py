"""The drafter's attention over its own earlier draft steps, in blocks of queries: its memory grows with T, not with T * T.

Shapes: B rows, T tokens a row, d columns of a head's query and key, e of its value, kv key-value heads that each serve g query heads. The
scheme is FlashAttention-2's (arXiv:2307.08691, algorithms 1 and 2): kept are the output and the logarithm of each query's normaliser, and
the backward pass computes the scores anew; a block of queries sees only the keys before its end and, where windows are packed, of its own
windows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from remote.agents.training.packing import Packing

_BLOCK = 256
"""Queries whose scores exist together."""


@dataclass(frozen=True)
class _Queries:
    """Queries `start` to `stop` [B, kv, g, b, d] in float or half precision, already multiplied by the scale.

    They see nothing before `first`, and each nothing before its own of `starts` [b], where there are any.
    """

    first: int
    start: int
    stop: int
    states: Tensor
    starts: Tensor | None

    @property
    def seen(self) -> slice:
        """The keys of the first draft step that any of them sees, c of them."""
        return slice(self.first, self.stop)

    def against(self, keys: Tensor) -> Tensor:
        """Masked scores float32 [B, kv, g, b, c] of the first draft step's keys [B, kv, T, d]."""
        rows = self.states.flatten(2, 3) @ keys[:, :, self.seen].transpose(-1, -2)
        scores = rows.unflatten(2, self.states.shape[2:4]).float()
        size = self.stop - self.start
        future = torch.ones(size, size, dtype=torch.bool, device=scores.device).triu(1)
        scores[..., self.start - self.first :].masked_fill_(future, float("-inf"))
        if self.starts is not None:
            others = torch.arange(self.first, self.stop, device=scores.device) < self.starts[:, None]
            scores.masked_fill_(others, float("-inf"))
        return scores

    def beside(self, keys: Tensor) -> Tensor:
        """Scores float32 [B, kv, g, b, 1] of a later step's keys, each query against the one at its own index."""
        return (self.states * keys[:, :, None, self.start : self.stop]).sum(-1, keepdim=True).float()


def _blocks(query: Tensor, scale: float, packing: Packing | None) -> Iterator[_Queries]:
    if packing is None:
        length = query.shape[3]
        for start in range(0, length, _BLOCK):
            stop = min(start + _BLOCK, length)
            yield _Queries(0, start, stop, query[:, :, :, start:stop] * scale, None)
        return
    for first, start, stop, mixed in packing.blocks(_BLOCK):
        starts = packing.starts[start:stop] if mixed else None
        yield _Queries(first, start, stop, query[:, :, :, start:stop] * scale, starts)


class _StepAttention(torch.autograd.Function):
    """The packing, the scale, the query [B, kv, g, T, d], and of every step the keys [B, kv, T, d], then the values [B, kv, T, e] -> [B, kv, g, T, e]."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it any attribute
        packing: Packing | None,
        scale: float,
        query: Tensor,
        *keys_and_values: Tensor,
    ) -> Tensor:
        steps = len(keys_and_values) // 2
        keys, values = keys_and_values[:steps], keys_and_values[steps:]
        ctx.packing, ctx.scale = packing, scale
        out = query.new_empty(*query.shape[:-1], values[0].shape[-1])
        normaliser = torch.empty(*query.shape[:-1], 1, dtype=torch.float32, device=query.device)
        for block in _blocks(query, scale, packing):
            scores = torch.cat([block.against(keys[0]), *(block.beside(key) for key in keys[1:])], dim=-1)
            place = (..., slice(block.start, block.stop), slice(None))
            normaliser[place] = scores.logsumexp(-1, keepdim=True)
            weights = scores.sub_(normaliser[place]).exp_().to(query.dtype)
            width = block.stop - block.first
            first = weights[..., :width].flatten(2, 3) @ values[0][:, :, block.seen]
            attended = first.unflatten(2, block.states.shape[2:4])
            for step, value in enumerate(values[1:]):
                attended += weights[..., width + step, None] * value[:, :, None, block.start : block.stop]
            out[place] = attended
        ctx.save_for_backward(query, out, normaliser, *keys_and_values)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        query, out, normaliser, *keys_and_values = ctx.saved_tensors
        steps = len(keys_and_values) // 2
        keys, values = keys_and_values[:steps], keys_and_values[steps:]
        packing, scale = ctx.packing, ctx.scale
        grad_query = torch.empty_like(query)
        grad_keys, grad_values = ([torch.zeros_like(state) for state in states] for states in (keys, values))
        shared = (grad * out).sum(-1, keepdim=True).float()
        for block in _blocks(query, scale, packing):
            start, stop = block.start, block.stop
            place = (..., slice(start, stop), slice(None))
            heads = block.states.shape[2:4]
            grad_block = grad[place]
            flat_grad = grad_block.flatten(2, 3)
            weights = block.against(keys[0]).sub_(normaliser[place]).exp_()
            grad_values[0][:, :, block.seen] += weights.to(query.dtype).flatten(2, 3).transpose(-1, -2) @ flat_grad
            wanted = (flat_grad @ values[0][:, :, block.seen].transpose(-1, -2)).unflatten(2, heads)
            grad_scores = weights.mul_(wanted.float().sub_(shared[place])).to(query.dtype).flatten(2, 3)
            grad_keys[0][:, :, block.seen] += grad_scores.transpose(-1, -2) @ block.states.flatten(2, 3)
            grad_states = (grad_scores @ keys[0][:, :, block.seen]).unflatten(2, heads)
            for step in range(1, steps):
                key, value = keys[step][:, :, None, start:stop], values[step][:, :, None, start:stop]
                weight = block.beside(keys[step]).sub_(normaliser[place]).exp_()
                wanted = (grad_block * value).sum(-1, keepdim=True).float()
                grad_score = (weight * (wanted - shared[place])).to(query.dtype)
                grad_states += grad_score * key
                grad_keys[step][:, :, start:stop] = (grad_score * block.states).sum(2)
                grad_values[step][:, :, start:stop] = (weight.to(query.dtype) * grad_block).sum(2)
            grad_query[place] = grad_states * scale
        return None, None, grad_query, *grad_keys, *grad_values


def attend(
    query: Tensor, keys: list[Tensor], values: list[Tensor], scale: float, packing: Packing | None = None
) -> Tensor:
    """Attention of draft step k = `len(keys)` - 1: causal over step 0, and over the own index of each later step.

    `query` [B, heads, T, d]; of every step so far keys [B, kv_heads, T, d] and values [B, kv_heads, T, e]; scores times `scale`, softmax
    in float32. Returns [B, heads, T, e]; equal to SpecForge 0.2.0's cached attention (`llama3_eagle.py`). With `packing` a window of the
    one row does not see the others.
    """
    grouped = query.unflatten(1, (keys[0].shape[1], -1))
    return _StepAttention.apply(packing, scale, grouped, *keys, *values).flatten(1, 2)
