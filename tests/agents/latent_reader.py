"""What DeepSeek's own attention in transformers makes of an exported drafter, as an engine would run it; under the engine's Python.

latent_reader.py DRAFTER…: in each directory `inputs.st` has `embedding` [V, H], `ids` [T + steps], `aux` [T, L * H] and `places` [P]. For
each place t the prompt is fed up to t and drafts follow one another, a token each, as in serving; `logits.st` gets `logits` [P, steps, D].
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RMSNorm,
    DeepseekV3RotaryEmbedding,
)


class Served:
    """A drafter by the names of its tensors and its config alone."""

    def __init__(self, directory: Path) -> None:
        self.weights = {name: value.float() for name, value in load_file(directory / "model.safetensors").items()}
        config = DeepseekV3Config.from_pretrained(directory)
        config._attn_implementation = "eager"
        self.eps = config.rms_norm_eps
        self.rotary = DeepseekV3RotaryEmbedding(config)
        attention = DeepseekV3Attention(config, layer_idx=0)
        width = 2 * config.hidden_size
        attention.q_a_proj = nn.Linear(width, config.q_lora_rank, bias=False)
        attention.kv_a_proj_with_mqa = nn.Linear(width, config.kv_lora_rank + config.qk_rope_head_dim, bias=False)
        # Engines give these the drafter's epsilon, transformers one of its own.
        attention.q_a_layernorm = DeepseekV3RMSNorm(config.q_lora_rank, eps=self.eps)
        attention.kv_a_layernorm = DeepseekV3RMSNorm(config.kv_lora_rank, eps=self.eps)
        prefix = "midlayer.self_attn."
        own = {name.removeprefix(prefix): value for name, value in self.weights.items() if name.startswith(prefix)}
        attention.load_state_dict(own)
        self.attention = attention.eval()

    def norm(self, name: str, states: Tensor) -> Tensor:
        scale = self.weights[f"{name}.weight"]
        return scale * states * torch.rsqrt(states.square().mean(-1, keepdim=True) + self.eps)

    def fuse(self, aux: Tensor) -> Tensor:
        layers = aux.chunk(aux.shape[-1] // self.weights["norm.weight"].shape[0], -1)
        parts = [self.norm(f"fc_norm.{number}", layer) for number, layer in enumerate(layers)]
        return linear(torch.cat(parts, -1), self.weights["fc.weight"])

    def states(self, embeddings: Tensor, hidden: Tensor) -> Tensor:
        """The states [N, H] after the layer of N tokens at positions 0 to N - 1."""
        both = torch.cat(
            [self.norm("midlayer.input_layernorm", embeddings), self.norm("midlayer.hidden_norm", hidden)], -1
        )
        size = len(both)
        mask = torch.full((size, size), float("-inf")).triu(1)[None, None]
        turns = self.rotary(both[None], torch.arange(size)[None])
        hidden = hidden + self.attention(both[None], turns, mask)[0][0]
        x = self.norm("midlayer.post_attention_layernorm", hidden)
        gate, up, down = (self.weights[f"midlayer.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return hidden + linear(silu(linear(x, gate)) * linear(x, up), down)

    def logits(self, states: Tensor) -> Tensor:
        return linear(self.norm("norm", states), self.weights["lm_head.weight"])


@torch.no_grad()
def draft(served: Served, given: dict[str, Tensor], place: int, steps: int) -> Tensor:
    """Logits [steps, D] of the drafts after the token at `place`."""
    hidden = served.fuse(given["aux"])[: place + 1]
    said: list[Tensor] = []
    for step in range(steps):
        tokens = given["ids"][1 : place + 2 + step]
        after = served.states(embedding(tokens, given["embedding"]), hidden)
        said.append(served.logits(after[-1]))
        hidden = torch.cat([hidden, after[-1:]])
    return torch.stack(said)


if __name__ == "__main__":
    for directory in map(Path, sys.argv[1:]):
        given, served = load_file(directory / "inputs.st"), Served(directory)
        steps = len(given["ids"]) - len(given["aux"])
        said = [draft(served, given, int(place), steps) for place in given["places"]]
        save_file({"logits": torch.stack(said)}, directory / "logits.st")
