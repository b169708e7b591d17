"""The drafter's attention, of Llama's kind and of DeepSeek's: both read embedding and hidden state side by side.

Shapes: B rows, T tokens a row, H hidden size, d head size.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from remote.agents.training.latent import Latent, score_scale
from remote.agents.training.numerics import halves_of_pairs, rms_norm, rotary_frequencies, rotary_tables, rotate
from remote.agents.training.packing import Packing
from remote.agents.training.shape import DrafterShape
from remote.agents.training.step_attention import attend


class RMSNorm(nn.Module):
    """Root-mean-square normalisation with a learnt scale [H]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        return rms_norm(states, self.weight, self.eps)


@dataclass
class StepCache:
    """Keys and values of the draft steps so far, each [B, kv_heads, T, d]; with `packing` the one row holds windows apart."""

    packing: Packing | None = None
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def positions(self, states: Tensor) -> Tensor:
        """Where the tokens of `states` [B, T, ...] stand in the next draft step: int64 [T]."""
        places = torch.arange(states.shape[1], device=states.device) + len(self.keys)
        return places if self.packing is None else places - self.packing.starts

    def attend(self, query: Tensor, scale: float) -> Tensor:
        """The attention of `query` [B, heads, T, d] over all steps so far: [B, T, heads * e]."""
        return attend(query, self.keys, self.values, scale, self.packing).transpose(1, 2).flatten(2)


class GroupedAttention(nn.Module):
    """Grouped-query attention over [B, T, 2H]."""

    frequencies: Tensor

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        queries = shape.num_attention_heads * shape.head_dim
        keys = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(2 * shape.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(2 * shape.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(2 * shape.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)
        self.register_buffer("frequencies", rotary_frequencies(shape.rope, shape.head_dim), persistent=False)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

    def forward(self, states: Tensor, cache: StepCache) -> Tensor:
        """Attend as the next draft step and append its keys and values to `cache`; returns [B, T, H]."""
        tables = rotary_tables(cache.positions(states), self.frequencies, self.shape.rope.magnitude)
        query = rotate(self._heads(self.q_proj(states)), *tables)
        cache.keys.append(rotate(self._heads(self.k_proj(states)), *tables))
        cache.values.append(self._heads(self.v_proj(states)))
        return self.o_proj(cache.attend(query, self.shape.head_dim**-0.5))


class LatentAttention(nn.Module):
    """Multi-head latent attention over [B, T, 2H], as `DeepseekV2AttentionMLA` of SGLang 0.5.23 has it.

    Keys and values are written out for every head: an engine that folds them into the query saves cache, a training saves nothing.
    """

    frequencies: Tensor

    def __init__(self, shape: DrafterShape, latent: Latent) -> None:
        super().__init__()
        self.latent = latent
        self.heads = shape.num_attention_heads
        self.magnitude = shape.rope.magnitude
        self.scale = score_scale(latent, shape.rope)
        width, eps = 2 * shape.hidden_size, shape.rms_norm_eps
        self.q_a_proj = nn.Linear(width, latent.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(latent.q_lora_rank, eps)
        self.q_b_proj = nn.Linear(latent.q_lora_rank, self.heads * latent.qk_head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(width, latent.kv_lora_rank + latent.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(latent.kv_lora_rank, eps)
        written_out = self.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
        self.kv_b_proj = nn.Linear(latent.kv_lora_rank, written_out, bias=False)
        self.o_proj = nn.Linear(self.heads * latent.v_head_dim, shape.hidden_size, bias=False)
        frequencies = rotary_frequencies(shape.rope, latent.qk_rope_head_dim)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, states: Tensor, cache: StepCache) -> Tensor:
        """Attend as the next draft step and append its keys and values to `cache`; returns [B, T, H]."""
        latent = self.latent
        tables = rotary_tables(cache.positions(states), self.frequencies, self.magnitude)
        query = self._heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(states))))
        still, turning = query.split([latent.qk_nope_head_dim, latent.qk_rope_head_dim], dim=-1)
        query = torch.cat([still, rotate(halves_of_pairs(turning), *tables)], dim=-1)
        compressed, turning = self.kv_a_proj_with_mqa(states).split(
            [latent.kv_lora_rank, latent.qk_rope_head_dim], dim=-1
        )
        both = self._heads(self.kv_b_proj(self.kv_a_layernorm(compressed)))
        still, values = both.split([latent.qk_nope_head_dim, latent.v_head_dim], dim=-1)
        turned = rotate(halves_of_pairs(turning)[:, None], *tables)
        cache.keys.append(torch.cat([still, turned.expand(-1, self.heads, -1, -1)], dim=-1))
        cache.values.append(values)
        return self.o_proj(cache.attend(query, self.scale))
