"""The arithmetic inside the drafter, exactly as in SpecForge 0.2.0 and EAGLE (`cnets.py`).

Shapes: B rows, T tokens a row, H hidden size, d head size.
"""

import math

import torch
from torch import Tensor

from remote.agents.training.packing import Packing
from remote.agents.training.rope import Linear, Llama3, Rope, Yarn


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`states` [..., H] over their root mean square, computed in float32 and scaled by `weight` [H]."""
    wide = states.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(states.dtype)


def rotary_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians that each pair of a head's places turns from a position to the next, float32 [d / 2]."""
    plain = 1.0 / rope.base(head_dim) ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    match rope.scaling:
        case Linear(factor=factor):
            return plain / factor
        case Llama3(
            factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=original
        ):
            turns = original * plain / (2 * math.pi)
            kept = ((turns - low) / (high - low)).clamp(0, 1)
            return (1 - kept) * plain / factor + kept * plain
        case Yarn() as yarn:
            stretched = _stretched(yarn, rope.theta, head_dim)
            return plain / yarn.factor * stretched + plain * (1 - stretched)
        case _:
            return plain


def _stretched(yarn: Yarn, theta: float, head_dim: int) -> Tensor:
    """How much of the stretch each frequency gets, 0 to 1, float32 [d / 2]."""
    first, last = (
        head_dim * math.log(yarn.original_max_position_embeddings / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (yarn.beta_fast, yarn.beta_slow)
    )
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first or 0.001
    return ((torch.arange(head_dim // 2, dtype=torch.float32) - first) / width).clamp(0, 1)


def rotary_tables(positions: Tensor, frequencies: Tensor, magnitude: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, d] at `positions` [T] of `frequencies` [d / 2], in the half-split (neox) layout."""
    angles = positions.float()[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos() * magnitude, angles.sin() * magnitude


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`heads` [B, heads, T, d] rotated by the tables [T, d] of their positions."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosines.to(heads.dtype) + torch.cat([-second, first], dim=-1) * sines.to(heads.dtype)


def halves_of_pairs(heads: Tensor) -> Tensor:
    """`heads` [..., d] whose neighbours turn together (DeepSeek's layout) as `rotate` wants them: the first of each pair, then the second.

    Scores stay what they were where query and key are both put so.
    """
    return heads.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def shift_left(rows: Tensor, packing: Packing | None = None) -> Tensor:
    """`rows` [B, T, ...] moved one place to the left, zeros at the end; with `packing` each window of the one row by itself."""
    shifted = torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], dim=1)
    if packing is not None:
        shifted[:, packing.lasts] = 0
    return shifted
