"""The drafter: one Llama layer over the target's embeddings and its fused auxiliary hidden states.

Parameter names are those of the exported checkpoint (SGLang's `LlamaForCausalLMEagle3`).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from remote.agents.training.numerics import rms_norm, rotary_frequencies, rotary_tables, rotate
from remote.agents.training.rope import Rope
from remote.agents.training.step_attention import attend


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of a drafter; `aux_layers` is how many of the target's hidden states it fuses.

    `normalise_aux` gives each of them a norm of its own before `fc` (SGLang's `fc_norm`): their sizes differ by an order
    of magnitude, and a drafter that sees little data never learns to weigh them.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    aux_layers: int
    rms_norm_eps: float
    rope: Rope
    max_position_embeddings: int
    normalise_aux: bool = False


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
    """Keys and values of the draft steps so far, each [B, kv_heads, T, d]."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


class Attention(nn.Module):
    """Grouped-query attention that reads embedding and hidden state side by side [B, T, 2H]."""

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
        positions = torch.arange(states.shape[1], device=states.device) + len(cache.keys)
        tables = rotary_tables(positions, self.frequencies, self.shape.rope.magnitude)
        query = rotate(self._heads(self.q_proj(states)), *tables)
        cache.keys.append(rotate(self._heads(self.k_proj(states)), *tables))
        cache.values.append(self._heads(self.v_proj(states)))
        return self.o_proj(attend(query, cache.keys, cache.values).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Llama's gated feed-forward, SiLU."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class MiddleLayer(nn.Module):
    """The one decoder layer: embedding and hidden state are normalised apart and read together."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, embeddings: Tensor, hidden: Tensor, cache: StepCache) -> Tensor:
        """Embeddings and hidden states [B, T, H] of a draft step -> the next hidden states, not normalised."""
        both = torch.cat([self.input_layernorm(embeddings), self.hidden_norm(hidden)], dim=-1)
        hidden = hidden + self.self_attn(both, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Drafter(nn.Module):
    """EAGLE-3's drafter; the embedding [V, H] is the target's and stays frozen, outside the checkpoint."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.aux_layers * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = MiddleLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        self.embedding = torch.empty(0)
        self.fc_norm = self._aux_norms(shape) if shape.normalise_aux else None

    @staticmethod
    def _aux_norms(shape: DrafterShape) -> nn.ModuleList:
        return nn.ModuleList(RMSNorm(shape.hidden_size, shape.rms_norm_eps) for _ in range(shape.aux_layers))

    def fuse(self, aux: Tensor) -> Tensor:
        """Auxiliary states [B, T, L * H], ascending layers side by side -> [B, T, H]."""
        aux = aux.to(self.fc.weight.dtype)
        if self.fc_norm is not None:
            layers = aux.chunk(self.shape.aux_layers, dim=-1)
            aux = torch.cat([norm(layer) for norm, layer in zip(self.fc_norm, layers, strict=True)], dim=-1)
        return self.fc(aux)

    def step(self, token_ids: Tensor, hidden: Tensor, cache: StepCache) -> Tensor:
        """The next draft step over `token_ids` int64 [B, T] and the hidden states [B, T, H] of the step before."""
        return self.midlayer(functional.embedding(token_ids, self.embedding).to(hidden.dtype), hidden, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., H] -> logits over the draft vocabulary [..., D]."""
        return self.lm_head(self.norm(hidden))
