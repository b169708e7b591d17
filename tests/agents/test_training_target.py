"""The parts of a target that the trainer reads, under the names that Llama, tied and Kimi checkpoints give them."""

import json

import pytest
import torch
from safetensors.torch import save_file

from remote.agents.training.rope import Rope
from remote.agents.training.target import read_target_config, read_target_weights
from remote.errors import NotFound, Precondition

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "vocab_size": 12,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_theta": 100000.0,
    "torch_dtype": "bfloat16",
    "eos_token_id": 2,
}
EMBEDDING = torch.arange(12 * 32, dtype=torch.float32).view(12, 32)
HEAD, NORM = EMBEDDING + 1000, torch.arange(32, dtype=torch.float32)


def test_sizes_that_a_config_leaves_out_follow_from_the_others(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    config = read_target_config(tmp_path)
    assert (config.head_dim, config.num_key_value_heads, config.rope) == (8, 4, Rope(100000.0))
    assert config.token_ids == {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": None}


def test_a_multimodal_config_is_read_by_its_text_part(tmp_path):
    text = {**CONFIG, "head_dim": 16, "rope_parameters": {"rope_theta": 50000.0}}
    outer = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": text, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    config = read_target_config(tmp_path)
    assert config.architecture == "KimiK25ForConditionalGeneration"
    assert (config.head_dim, config.rope) == (16, Rope(50000.0))


@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_weights_are_found_across_shards(tmp_path, prefix):
    shards = {
        "a.safetensors": {f"{prefix}model.embed_tokens.weight": EMBEDDING},
        "b.safetensors": {f"{prefix}lm_head.weight": HEAD, f"{prefix}model.norm.weight": NORM},
    }
    for file, tensors in shards.items():
        save_file(tensors, tmp_path / file)
    index = {"weight_map": {name: file for file, tensors in shards.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = read_target_weights(tmp_path)
    assert torch.equal(weights.embedding, EMBEDDING)
    assert torch.equal(weights.head, HEAD)
    assert torch.equal(weights.final_norm, NORM)


def test_a_tied_head_is_the_embedding(tmp_path):
    save_file({"model.embed_tokens.weight": EMBEDDING, "model.norm.weight": NORM}, tmp_path / "model.safetensors")
    weights = read_target_weights(tmp_path)
    assert weights.head is weights.embedding


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(NotFound, match=r"config\.json"):
        read_target_config(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Precondition, match="num_attention_heads"):
        read_target_config(tmp_path)
    save_file({"transformer.wte.weight": EMBEDDING}, tmp_path / "model.safetensors")
    with pytest.raises(Precondition, match="embed_tokens"):
        read_target_weights(tmp_path)
