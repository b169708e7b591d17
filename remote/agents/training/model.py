"""The drafter: one decoder layer over the target's embeddings and its fused auxiliary hidden states.

Parameter names are those of the exported checkpoint (SGLang's `LlamaForCausalLMEagle3`, `Eagle3DeepseekV2ForCausalLM`).
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from remote.agents.training.attention import GroupedAttention, LatentAttention, RMSNorm, StepCache
from remote.agents.training.shape import DrafterShape

_T = TypeVar("_T")


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
        self.self_attn = GroupedAttention(shape) if shape.latent is None else LatentAttention(shape, shape.latent)
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

    def forward(self, work: "Callable[[Drafter], _T]") -> _T:
        """What `work` makes of the drafter, which is whole meanwhile where it is split over ranks."""
        return work(self)

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
