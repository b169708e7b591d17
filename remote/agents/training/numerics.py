"""The arithmetic inside the drafter, exactly as in SpecForge 0.2.0 and EAGLE (`cnets.py`).

Shapes: B rows, T tokens a row, H hidden size, d head size.
"""

import torch
from torch import Tensor


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`states` [..., H] over their root mean square, computed in float32 and scaled by `weight` [H]."""
    wide = states.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(states.dtype)


def rotary_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, d] of plain rotary embedding at `positions` [T], in the half-split (neox) layout."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float()[:, None] / theta**exponents
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`heads` [B, heads, T, d] rotated by the tables [T, d] of their positions."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosines.to(heads.dtype) + torch.cat([-second, first], dim=-1) * sines.to(heads.dtype)


def shift_left(rows: Tensor) -> Tensor:
    """`rows` [B, T, ...] moved one place to the left, zeros at the end."""
    return torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], dim=1)


def attend(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attention of draft step k = `len(keys)` - 1: causal over step 0, and over the own index of each later step.

    `query` [B, heads, T, d]; keys and values [B, kv_heads, T, d] of every step so far; softmax in float32. Returns
    [B, heads, T, d].
    """
    groups = query.shape[1] // keys[0].shape[1]
    keys = [key.repeat_interleave(groups, dim=1) for key in keys]
    values = [value.repeat_interleave(groups, dim=1) for value in values]
    length = query.shape[2]
    scale = query.shape[-1] ** -0.5
    future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = ((query @ keys[0].transpose(-1, -2)) * scale).masked_fill(future, torch.finfo(query.dtype).min)
    diagonal = [(query * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
    weights = torch.cat([scores, *diagonal], dim=-1).float().softmax(-1).to(query.dtype)
    attended = weights[..., :length] @ values[0]
    for step, value in enumerate(values[1:]):
        attended = attended + weights[..., length + step, None] * value
    return attended
