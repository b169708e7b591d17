"""The trained drafter as speculators 0.9 keeps one: it goes on from there, and vLLM serves it by its directory alone (`vllm serve DIR`)."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from remote.agents.training.export import (
    CONFIG,
    WEIGHTS,
    ExportedMapping,
    checkpoint_tensors,
    drafter_config,
    saved_dtype,
)
from remote.agents.training.measure import MEASURED_DRAFTS
from remote.agents.training.model import Drafter
from remote.agents.training.target import TargetConfig

_OF_THE_LAYER = (
    "hidden_act",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)


def speculators_config(
    drafter: Drafter, target: TargetConfig, *, layer_ids: list[int], verifier: str, dtype: str
) -> dict[str, Any]:
    """`config.json`; `layer_ids` are Hugging Face ids, as speculators counts, and `verifier` is the target's directory.

    Its drafters normalise the residual unless their config says otherwise, ours never does.
    """
    shape = drafter.shape
    served = drafter_config(shape, target, layer_ids=layer_ids, dtype=dtype)
    rope = {"rope_type": "default", **(served["rope_scaling"] or {}), "rope_theta": served["rope_theta"]}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": MEASURED_DRAFTS}],
            "verifier": {"name_or_path": verifier, "architectures": [target.architecture]},
        },
        "transformer_layer_config": {
            "model_type": "llama",
            **{name: served[name] for name in _OF_THE_LAYER},
            "rope_parameters": rope,
        },
        "draft_vocab_size": shape.draft_vocab_size,
        "target_hidden_size": target.hidden_size,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "norm_output": False,
        "fc_norm": shape.normalise_aux,
        "embed_requires_grad": False,
        "eagle_aux_hidden_state_layer_ids": layer_ids,
        "tie_word_embeddings": False,
        "dtype": dtype,
    }


def write_speculators(
    directory: Path,
    drafter: Drafter,
    mapping: ExportedMapping,
    *,
    target: TargetConfig,
    layer_ids: list[int],
    verifier: str,
    embedding: Tensor,
) -> list[str]:
    """Write `config.json` and `model.safetensors` into `directory`; returns their names.

    The target's `embedding` [V, H] is written, too: where it is missing speculators 0.9 leaves whatever the memory held.
    """
    dtype = saved_dtype(target)
    config = speculators_config(drafter, target, layer_ids=layer_ids, verifier=verifier, dtype=dtype)
    tensors = checkpoint_tensors(drafter, mapping, getattr(torch, dtype))
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    renamed["embed_tokens.weight"] = embedding[: target.vocab_size].to("cpu", getattr(torch, dtype)).contiguous()
    save_file(renamed, directory / WEIGHTS, metadata={"format": "pt"})
    (directory / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    return [CONFIG, WEIGHTS]
