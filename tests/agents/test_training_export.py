"""What the exported checkpoint says to SGLang 0.5.23."""

import json

import pytest
import torch
from safetensors import safe_open

from remote.agents.training.export import ExportedMapping, drafter_config, write_checkpoint
from remote.agents.training.model import Drafter
from remote.agents.training.rope import Rope
from remote.agents.training.shape import DrafterShape
from remote.agents.training.target import TargetConfig

SERVED = {
    "fc.weight": (32, 96),
    "fc_norm.0.weight": (32,),
    "fc_norm.1.weight": (32,),
    "fc_norm.2.weight": (32,),
    "midlayer.input_layernorm.weight": (32,),
    "midlayer.hidden_norm.weight": (32,),
    "midlayer.post_attention_layernorm.weight": (32,),
    "midlayer.self_attn.q_proj.weight": (64, 64),
    "midlayer.self_attn.k_proj.weight": (16, 64),
    "midlayer.self_attn.v_proj.weight": (16, 64),
    "midlayer.self_attn.o_proj.weight": (32, 64),
    "midlayer.mlp.gate_proj.weight": (48, 32),
    "midlayer.mlp.up_proj.weight": (48, 32),
    "midlayer.mlp.down_proj.weight": (32, 48),
    "norm.weight": (32,),
    "lm_head.weight": (6, 32),
    "d2t": (6,),
    "t2d": (12,),
}


def _shape(*, normalise_aux: bool = True) -> DrafterShape:
    return DrafterShape(
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=12,
        draft_vocab_size=6,
        aux_layers=3,
        rms_norm_eps=1e-5,
        rope=Rope(50000.0),
        max_position_embeddings=4096,
        normalise_aux=normalise_aux,
    )


def _target(architecture: str = "LlamaForCausalLM", dtype: str = "bfloat16", layers: int = 30) -> TargetConfig:
    return TargetConfig(
        architecture=architecture,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=12,
        rms_norm_eps=1e-5,
        rope=Rope(50000.0),
        max_position_embeddings=4096,
        dtype=dtype,
        token_ids={"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
    )


def _mapping() -> ExportedMapping:
    chosen = torch.tensor([0, 2, 3, 7, 8, 11])
    t2d = torch.zeros(12, dtype=torch.bool)
    t2d[chosen] = True
    return ExportedMapping(chosen - torch.arange(6), t2d)


@pytest.mark.parametrize(("dtype", "stored"), [("bfloat16", torch.bfloat16), ("float32", torch.float32)])
def test_the_checkpoint_has_the_served_names_shapes_and_dtype(tmp_path, dtype, stored):
    drafter = Drafter(_shape())
    names = write_checkpoint(tmp_path, drafter, _mapping(), target=_target(dtype=dtype), layer_ids=[2, 15, 27])
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == SERVED
    assert tensors["d2t"].dtype == torch.int64
    assert (tensors["d2t"] + torch.arange(6)).tolist() == [0, 2, 3, 7, 8, 11]
    assert tensors["t2d"].dtype == torch.bool
    assert {tensors[name].dtype for name in SERVED if name not in {"d2t", "t2d"}} == {stored}
    torch.testing.assert_close(tensors["fc.weight"], drafter.fc.weight.detach().to(stored))


def test_the_config_speaks_of_what_the_tensors_are(tmp_path):
    write_checkpoint(tmp_path, Drafter(_shape()), _mapping(), target=_target(), layer_ids=[2, 15, 27])
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == 6
    assert config["vocab_size"] == 12
    assert config["num_aux_hidden_states"] == 3
    assert config["fc_norm"] is True
    assert config["tie_word_embeddings"] is False
    assert config["max_position_embeddings"] == 4096
    assert config["rope_theta"] == 50000.0
    assert config["torch_dtype"] == "bfloat16"
    assert config["eos_token_id"] == 2


def test_without_norms_the_config_asks_for_none():
    config = drafter_config(_shape(normalise_aux=False), _target(), layer_ids=[2, 15, 27], dtype="bfloat16")
    assert config["fc_norm"] is False
    assert Drafter(_shape(normalise_aux=False)).fc_norm is None


@pytest.mark.parametrize(
    ("architecture", "layers", "ids", "served"),
    [
        ("LlamaForCausalLM", 30, [2, 15, 27], [1, 14, 26]),
        ("KimiK25ForConditionalGeneration", 61, [3, 31, 59], [3, 31, 59]),
    ],
)
def test_layer_ids_leave_in_the_servers_numbering(architecture, layers, ids, served):
    config = drafter_config(_shape(), _target(architecture, layers=layers), layer_ids=ids, dtype="bfloat16")
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": served, "use_aux_hidden_state": True}
    # vLLM reads them here, and counts as Hugging Face does.
    assert config["eagle_aux_hidden_state_layer_ids"] == ids
