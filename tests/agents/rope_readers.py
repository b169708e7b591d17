"""The rotary tables that an engine and transformers make of drafters' config.json, as one safetensors file; run under the engine's Python.

python rope_readers.py sglang|vllm DIRECTORY OUTPUT, where DIRECTORY has drafters/NAME/config.json and targets/NAME/config.json; the
targets are read by transformers alone.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding


def of_transformers(config: LlamaConfig, positions: torch.Tensor) -> torch.Tensor:
    """Cosines and sines side by side [T, d]; half of either, for the other half says the same."""
    cosines, sines = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    half = config.head_dim // 2
    return torch.cat([cosines[0, :, :half], sines[0, :, :half]], dim=-1)


def of_sglang(config: LlamaConfig, positions: torch.Tensor) -> torch.Tensor:
    from sglang.srt.layers.rotary_embedding import get_rope  # noqa: PLC0415 - one engine at a time

    # As LlamaDecoderLayer does (srt/models/llama.py).
    rope = get_rope(
        config.head_dim,
        rotary_dim=config.head_dim,
        max_position=config.max_position_embeddings,
        base=config.rope_parameters["rope_theta"],
        rope_scaling=config.rope_parameters,
        dtype=torch.float32,
    )
    return rope.cos_sin_cache[positions]


def of_vllm(config: LlamaConfig, positions: torch.Tensor) -> torch.Tensor:
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415 - as above
    from vllm.model_executor.layers.rotary_embedding import get_rope  # noqa: PLC0415 - as above

    with set_current_vllm_config(VllmConfig()):
        # As LlamaAttention does (model_executor/models/llama.py).
        rope = get_rope(
            config.head_dim,
            max_position=config.max_position_embeddings,
            rope_parameters=config.rope_parameters,
            dtype=torch.float32,
        )
    return rope.cos_sin_cache[positions]


def config_of(engine: str, directory: Path) -> Any:
    """The drafter's config as the engine reads it."""
    if engine == "vllm":
        from vllm.transformers_utils.config import get_config  # noqa: PLC0415 - as above

        return get_config(directory, trust_remote_code=False)
    from sglang.srt.utils.hf_transformers_utils import get_config  # noqa: PLC0415 - as above

    return get_config(str(directory), trust_remote_code=False)


if __name__ == "__main__":
    engine, directory, output = sys.argv[1:]
    asked = torch.tensor(json.loads((Path(directory) / "positions.json").read_text()))
    read = {"sglang": of_sglang, "vllm": of_vllm}[engine]
    tables = {}
    for place in Path(directory).glob("targets/*"):
        tables[f"{place.name}.target"] = of_transformers(AutoConfig.from_pretrained(place), asked)
    for place in Path(directory).glob("drafters/*"):
        tables[f"{place.name}.transformers"] = of_transformers(AutoConfig.from_pretrained(place), asked)
        tables[f"{place.name}.engine"] = read(config_of(engine, place), asked).float()
    save_file({name: table.contiguous() for name, table in tables.items()}, output)
