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
