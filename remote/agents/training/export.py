"""The trained drafter as a checkpoint that SGLang 0.5.23 and vLLM serve.

Their classes are `LlamaForCausalLMEagle3` (`models/llama_eagle3.py` of both) and `Eagle3DeepseekV2ForCausalLM` (`models/kimi_k25_eagle3.py`
of SGLang, `models/deepseek_eagle3.py` of vLLM).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from remote.agents.training.latent import Latent
from remote.agents.training.model import Drafter
from remote.agents.training.shape import DrafterShape
from remote.agents.training.target import TargetConfig
from remote.engines.layer_ids import to_sglang

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
LLAMA = "LlamaForCausalLMEagle3"
MLA = "Eagle3DeepseekV2ForCausalLM"


@dataclass(frozen=True)
class ExportedMapping:
    """The draft vocabulary in the checkpoint: `d2t` int64 [D] offsets (target id = draft id + offset), `t2d` bool [V]."""

    d2t: Tensor
    t2d: Tensor


def drafter_config(shape: DrafterShape, target: TargetConfig, *, layer_ids: list[int], dtype: str) -> dict[str, Any]:
    """`config.json` of the drafter; `layer_ids` are Hugging Face ids.

    SGLang reads them in `eagle_config` and counts its own way, vLLM reads them beside it and counts as Hugging Face does.
    """
    served = to_sglang(layer_ids, architecture=target.architecture, num_hidden_layers=target.num_hidden_layers)
    return {
        **(_grouped_config(shape) if shape.latent is None else _latent_config(shape, shape.latent)),
        "hidden_act": "silu",
        "num_hidden_layers": 1,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": shape.rms_norm_eps,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        "torch_dtype": dtype,
        "num_aux_hidden_states": shape.aux_layers,
        "fc_norm": shape.normalise_aux,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": served, "use_aux_hidden_state": True},
        "eagle_aux_hidden_state_layer_ids": layer_ids,
        **target.token_ids,
    }


def _grouped_config(shape: DrafterShape) -> dict[str, Any]:
    return {
        "architectures": [LLAMA],
        "model_type": "llama",
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        **shape.rope.exported(shape.head_dim),
    }


def _latent_config(shape: DrafterShape, latent: Latent) -> dict[str, Any]:
    """The model_type is one that transformers knows: "kimi_k2", as published drafters have, is SGLang's alone, and a draft that is
    "deepseek_v3" vLLM 0.33 takes for DeepSeek's own MTP layer (`config/speculative.py`).
    """
    return {
        "architectures": [MLA],
        "model_type": "deepseek_v2",
        "num_key_value_heads": shape.num_attention_heads,
        **msgspec.to_builtins(latent),
        "rope_interleave": True,
        **shape.rope.exported(latent.qk_rope_head_dim),
    }


def saved_dtype(target: TargetConfig) -> str:
    """bfloat16 unless the target itself is float32; engines cast to their own."""
    return "float32" if target.dtype == "float32" else "bfloat16"


def checkpoint_tensors(drafter: Drafter, mapping: ExportedMapping, dtype: torch.dtype) -> dict[str, Tensor]:
    """The drafter's weights and the mapping, under the names that they are served by."""
    tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in drafter.state_dict().items()}
    return {**tensors, "d2t": mapping.d2t.cpu().contiguous(), "t2d": mapping.t2d.cpu().contiguous()}


def write_checkpoint(
    directory: Path, drafter: Drafter, mapping: ExportedMapping, *, target: TargetConfig, layer_ids: list[int]
) -> list[str]:
    """Write `config.json` and `model.safetensors` into `directory`; returns their names."""
    dtype = saved_dtype(target)
    config = drafter_config(drafter.shape, target, layer_ids=layer_ids, dtype=dtype)
    tensors = checkpoint_tensors(drafter, mapping, getattr(torch, dtype))
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    (directory / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    return [CONFIG, WEIGHTS]
