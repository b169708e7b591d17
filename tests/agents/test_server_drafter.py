"""A drafter that an engine would serve badly without a word is refused before the launch, with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remote.agents.server.drafter import MLA, Expectations, check_drafter
from remote.artifacts.mapping import Mapping
from remote.artifacts.safetensors_stream import Tensor, write_safetensors
from remote.protocol.run import SpeculationConfig

H, INNER, HEADS, KV_HEADS, HEAD_DIM, V, D = 8, 16, 2, 1, 4, 64, 16
MAPPING = Mapping.from_target_ids(np.arange(0, V, 4), V)
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": H,
    "vocab_size": V,
    "num_hidden_layers": 32,
    "max_position_embeddings": 4096,
}
SPECULATION = SpeculationConfig(num_steps=3, top_k=1, draft_tokens=4)
Arrays = dict[str, np.ndarray[Any, Any]]


def good_config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "hidden_size": H,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": V,
        "draft_vocab_size": D,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
    }


def good_arrays() -> Arrays:
    shapes = {
        "fc.weight": (H, 3 * H),
        "norm.weight": (H,),
        "lm_head.weight": (D, H),
        "midlayer.self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * H),
        "midlayer.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * H),
        "midlayer.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * H),
        "midlayer.self_attn.o_proj.weight": (H, HEADS * HEAD_DIM),
        "midlayer.mlp.gate_proj.weight": (INNER, H),
        "midlayer.mlp.up_proj.weight": (INNER, H),
        "midlayer.mlp.down_proj.weight": (H, INNER),
        "midlayer.hidden_norm.weight": (H,),
        "midlayer.input_layernorm.weight": (H,),
        "midlayer.post_attention_layernorm.weight": (H,),
    }
    found: Arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return found | {"d2t": MAPPING.d2t, "t2d": MAPPING.t2d}


TAGS = {"f4": "F32", "u2": "BF16", "i8": "I64", "i4": "I32", "b1": "BOOL"}


def write(directory: Path, config: dict[str, Any], arrays: Arrays) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    tensors = {name: Tensor(TAGS[array.dtype.str[1:]], array.shape, [array]) for name, array in ordered}
    write_safetensors(directory / "model.safetensors", tensors, {})
    return directory


def expected(**changes: Any) -> Expectations:
    values: dict[str, Any] = {
        "target_config": TARGET,
        "context_length": None,
        "speculation": SPECULATION,
        "layer_ids": [2, 16, 29],
        "mapping": MAPPING,
    }
    return Expectations(**values | changes)


def codes(directory: Path, wanted: Expectations | None = None) -> list[str]:
    return [found.code.removeprefix("drafter-") for found in check_drafter(directory, wanted or expected())]


def test_a_sound_drafter_is_found_sound(tmp_path):
    assert codes(write(tmp_path / "d", good_config(), good_arrays())) == []
    renamed = {name.replace("midlayer", "model.layers.0"): array for name, array in good_arrays().items()}
    assert codes(write(tmp_path / "e", good_config(), renamed)) == []


def test_a_drafter_without_its_origin_is_judged_by_itself(tmp_path):
    assert codes(write(tmp_path / "d", good_config(), good_arrays()), expected(layer_ids=None, mapping=None)) == []


CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("another architecture", {"architectures": ["LlamaForCausalLM"]}, "architecture"),
    ("speculators' own", {"architectures": None, "speculators_model_type": "eagle3"}, "architecture"),
    ("no hidden size", {"hidden_size": None}, "config"),
    ("two layers", {"num_hidden_layers": 2}, "layers"),
    ("another target", {"vocab_size": 128}, "vocab-size"),
    ("another width", {"target_hidden_size": 16}, "hidden-size"),
    ("a short reach", {"max_position_embeddings": 2048}, "context"),
    ("ids of the wrong layers", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}}, "layer-ids"),
    ("no ids", {"eagle_config": {"use_aux_hidden_state": True}}, "layer-ids-missing"),
    (
        "ids beside eagle_config",
        {"eagle_config": None, "eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
        "layer-ids-missing",
    ),
    ("no size of the draft vocabulary", {"draft_vocab_size": None}, "draft-vocab-size"),
    ("norms that are not there", {"fc_norm": True}, "tensor-missing"),
]


@pytest.mark.parametrize(("changes", "code"), [case[1:] for case in CONFIGS], ids=[case[0] for case in CONFIGS])
def test_a_config_that_misleads_the_engine_is_refused(tmp_path, changes, code):
    assert code in codes(write(tmp_path / "d", good_config() | changes, good_arrays()))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, []),
        ({}, ["layer-ids-missing"]),
        ({"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}, ["layer-ids"]),
    ],
    ids=["as trained", "SGLang's alone", "counted as SGLang does"],
)
def test_vllm_reads_the_layers_beside_eagle_config_as_hugging_face_counts(tmp_path, changes, found):
    directory = write(tmp_path / "d", good_config() | changes, good_arrays())
    assert codes(directory, expected(engine="vllm")) == found


def without(name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


def replaced(name: str, array: np.ndarray[Any, Any]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: arrays | {name: array}


ARRAYS: list[tuple[str, Callable[[Arrays], Arrays], str]] = [
    ("no mapping (NeMo#2447)", without("d2t"), "mapping-missing"),
    ("no head (sglang#27908)", without("lm_head.weight"), "tensor-missing"),
    ("absolute ids", replaced("d2t", MAPPING.target_ids), "absolute-ids"),
    ("int32", replaced("d2t", MAPPING.d2t.astype(np.int32)), "mapping"),
    ("a mapping of another size", replaced("d2t", MAPPING.d2t[:-1]), "mapping"),
    ("a head of another size", replaced("lm_head.weight", np.ones((D + 1, H), np.float32)), "tensor-shape"),
    ("NaN", replaced("norm.weight", np.full(H, np.nan, np.float32)), "not-finite"),
    ("infinity in bfloat16", replaced("norm.weight", np.full(H, 0x7F80, np.uint16)), "not-finite"),
    ("a name that the engine skips", replaced("midlayer.mlp.gate.weight", np.ones(1, np.float32)), "tensor-unknown"),
    ("no mask", without("t2d"), "mask-missing"),
]


@pytest.mark.parametrize(("change", "code"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS])
def test_weights_that_the_engine_would_take_without_a_word_are_named(tmp_path, change, code):
    assert code in codes(write(tmp_path / "d", good_config(), change(good_arrays())))


def test_a_mapping_that_was_made_again_after_the_training_is_refused(tmp_path):
    """SpecForge#534: good accuracy in training, bad when served."""
    other = Mapping.from_target_ids(np.arange(1, V, 4), V)
    assert codes(write(tmp_path / "d", good_config(), good_arrays()), expected(mapping=other)) == ["mapping-differs"]


@pytest.mark.parametrize(
    ("speculation", "is_refused"),
    [
        (SpeculationConfig(num_steps=3, top_k=1, draft_tokens=5), True),
        (SpeculationConfig(num_steps=1, top_k=1, draft_tokens=2), False),
        (SpeculationConfig(num_steps=2, top_k=2, draft_tokens=7), False),
        (SpeculationConfig(num_steps=2, top_k=2, draft_tokens=8), True),
    ],
)
def test_what_the_engine_would_draft_instead_is_said(tmp_path, speculation, is_refused):
    found = codes(write(tmp_path / "d", good_config(), good_arrays()), expected(speculation=speculation))
    assert (found == ["speculation"]) == is_refused


def test_the_context_that_counts_is_the_servers_or_else_the_targets(tmp_path):
    short = write(tmp_path / "d", good_config() | {"max_position_embeddings": 2048}, good_arrays())
    assert codes(short, expected(context_length=2048)) == []
    assert codes(short, expected(context_length=2049)) == ["context"]


def test_kimis_ids_are_not_shifted_and_its_sizes_are_nested(tmp_path):
    target = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": TARGET}
    config = good_config() | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 16, 29]}}
    drafter = write(tmp_path / "d", config, good_arrays())
    assert codes(drafter, expected(target_config=target, layer_ids=[3, 16, 29])) == []
    assert codes(drafter, expected(target_config=target, layer_ids=[2, 16, 29])) == ["layer-ids"]


def test_a_drafter_with_latent_attention_is_checked_as_the_engine_reads_it(tmp_path):
    sizes = {"q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 4}
    config = good_config() | {"architectures": [MLA]} | sizes
    attention = {
        "q_a_proj": (6, 2 * H),
        "q_a_layernorm": (6,),
        "q_b_proj": (HEADS * 5, 6),
        "kv_a_proj_with_mqa": (7, 2 * H),
        "kv_a_layernorm": (5,),
        "kv_b_proj": (HEADS * 7, 5),
        "o_proj": (H, HEADS * 4),
    }
    others = {name: array for name, array in good_arrays().items() if "self_attn" not in name}
    own = {f"layers.0.self_attn.{name}.weight": np.ones(shape, np.float32) for name, shape in attention.items()}
    arrays = others | own
    assert codes(write(tmp_path / "a", config, arrays)) == []
    assert codes(write(tmp_path / "b", config, without("fc.weight")(arrays))) == ["tensor-missing"]
    assert codes(write(tmp_path / "c", config | {"v_head_dim": 8}, arrays)) == ["tensor-shape"] * 2
    assert codes(write(tmp_path / "d", config | {"kv_lora_rank": None}, arrays)) == ["config"]
    stray = {"layers.0.self_attn.k_proj.weight": np.ones(3, np.float32)}
    assert codes(write(tmp_path / "e", config, arrays | stray)) == ["tensor-unknown"]


def test_what_cannot_be_read_is_said(tmp_path):
    drafter = write(tmp_path / "d", good_config(), good_arrays())
    weights = drafter / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    assert codes(drafter) == ["unreadable"]
    weights.unlink()
    assert codes(drafter) == ["unreadable"]
    (drafter / "config.json").write_text("[]")
    assert codes(drafter) == ["unreadable"]
