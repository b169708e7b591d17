"""The drafter's loss over its vocabulary, in chunks of positions: no more than a chunk of its logits ever exists.

The gradient is computed where the loss is, while the chunk's logits are there (as Liger Kernel's fused linear cross-entropy
does, arXiv:2410.10989, for hard targets).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK_ELEMENTS = 1 << 22
"""Logits that exist together: 16 MiB of float32, beside which a few buffers of the same size live for a moment."""


class SoftCrossEntropy(NamedTuple):
    """`total`: the weighted sum, float32 []; the only part that is differentiated. `losses` float32 and `choices` int64 [N]."""

    total: Tensor
    losses: Tensor
    choices: Tensor


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it any attribute
        states: Tensor,
        head: Tensor,
        probabilities: Tensor,
        rows: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = states.device.type
        half = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if half else head.dtype
        inputs, matrix = states.to(dtype), head.to(dtype)
        losses = torch.empty(len(states), dtype=torch.float32, device=states.device)
        choices = torch.empty(len(states), dtype=torch.int64, device=states.device)
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_states = torch.empty_like(inputs if wanted else inputs[:0])
        grad_head = torch.zeros_like(head if wanted else head[:0], dtype=torch.float32)
        chunk = max(1, _CHUNK_ELEMENTS // len(head))
        for start in range(0, len(states), chunk):
            part = slice(start, start + chunk)
            logits = functional.linear(inputs[part], matrix).float()
            target = probabilities[rows[part]]
            choices[part] = logits.argmax(-1)
            logits = functional.log_softmax(logits, dim=-1)
            losses[part] = -torch.linalg.vecdot(target, logits)
            if wanted:
                grad = logits.exp_().sub_(target).mul_(weights[part, None]).to(dtype)
                grad_states[part] = grad @ matrix
                grad_head.addmm_(grad.float().T, inputs[part].float())
        ctx.grad_states, ctx.grad_head = grad_states, grad_head
        ctx.dtypes = states.dtype, head.dtype
        ctx.mark_non_differentiable(losses, choices)
        return (losses * weights).sum(), losses, choices

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        states, head = ctx.grad_states, ctx.grad_head
        ctx.grad_states = ctx.grad_head = None
        dtypes = ctx.dtypes
        return states.mul_(grad).to(dtypes[0]), head.mul_(grad).to(dtypes[1]), None, None, None


def soft_cross_entropy(
    states: Tensor, head: Tensor, probabilities: Tensor, rows: Tensor, weights: Tensor
) -> SoftCrossEntropy:
    """The cross-entropy of `head` [D, H] on `states` [N, H] against `probabilities` float32 [M, D].

    `rows` int64 [N] says which distribution belongs to each state, `weights` float32 [N] what it counts in the total. N may be 0.
    """
    return SoftCrossEntropy(*_Function.apply(states, head, probabilities, rows, weights))
