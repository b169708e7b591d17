"""What the trainer needs of the target: its configuration, embedding, head and final norm, read by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from remote.agents.training.latent import Latent, read_latent
from remote.agents.training.rope import Rope, read_rope
from remote.errors import NotFound, Precondition

_PREFIXES = ("", "language_model.")


@dataclass(frozen=True)
class TargetConfig:
    """The parts of the target's `config.json` that shape a drafter."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope: Rope
    max_position_embeddings: int
    dtype: str
    token_ids: dict[str, Any]
    latent: Latent | None = None


@dataclass(frozen=True)
class TargetWeights:
    """`embedding` and `head` [V, H] (one tensor where they are tied), `final_norm` [H], in the checkpoint's dtype."""

    embedding: Tensor
    head: Tensor
    final_norm: Tensor


def read_target_config(model: Path) -> TargetConfig:
    """The configuration of the Hugging Face model in `model`; the text part of a multimodal one. Raises Precondition."""
    path = model / "config.json"
    try:
        config = json.loads(path.read_text())
        text = config.get("text_config") or config
        heads = text["num_attention_heads"]
        return TargetConfig(
            architecture=(config.get("architectures") or [""])[0],
            hidden_size=text["hidden_size"],
            intermediate_size=text["intermediate_size"],
            num_hidden_layers=text["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=text.get("num_key_value_heads") or heads,
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            vocab_size=text["vocab_size"],
            rms_norm_eps=text["rms_norm_eps"],
            rope=read_rope(text),
            max_position_embeddings=text["max_position_embeddings"],
            dtype=text.get("dtype") or text.get("torch_dtype") or "bfloat16",
            token_ids={name: text.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
            latent=read_latent(text),
        )
    except FileNotFoundError as error:
        raise NotFound(f"there is no target model in {model}: {path.name} is missing") from error
    except (KeyError, ValueError, TypeError) as error:
        raise Precondition(f"{path} does not describe a model that a drafter can be made for: {error!r}") from error


def _files_by_tensor(model: Path) -> dict[str, Path]:
    index = model / "model.safetensors.index.json"
    if index.is_file():
        return {name: model / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    names: dict[str, Path] = {}
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names.update(dict.fromkeys(file.keys(), path))
    return names


def _read(files: dict[str, Path], name: str) -> Tensor | None:
    for prefix in _PREFIXES:
        path = files.get(prefix + name)
        if path is not None:
            with safe_open(path, framework="pt") as file:
                return file.get_tensor(prefix + name)
    return None


def read_target_weights(model: Path) -> TargetWeights:
    """Embedding, head and final norm of the model in `model`, without reading anything else of it. Raises Precondition."""
    files = _files_by_tensor(model)
    embedding = _read(files, "model.embed_tokens.weight")
    final_norm = _read(files, "model.norm.weight")
    if embedding is None or final_norm is None:
        raise Precondition(
            f"the weights in {model} have no model.embed_tokens.weight or no model.norm.weight",
            hint="the trainer knows Llama, Qwen, DeepSeek and Kimi names, in safetensors files",
        )
    head = _read(files, "lm_head.weight")
    return TargetWeights(embedding, embedding if head is None else head, final_norm)
