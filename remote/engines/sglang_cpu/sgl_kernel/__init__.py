"""A stand-in for the CPU build of sgl_kernel, which no package index carries (`sgl-kernel` there holds CUDA code only).

SGLang 0.5.23 imports these names as soon as `SGLANG_USE_CPU_ENGINE=1`. Plain serving and capture with `torch_native` attention
call none of them; serving a drafter calls the cache, draft and attention functions, written here in plain PyTorch. A `_cpu`
name that is not here can be imported, as SGLang's module-level imports want, and raises NotImplementedError when called.

SGLang takes its AMX paths (packed weights, fused kernels) only where `torch.ops.sgl_kernel.convert_weight_packed` exists
(`srt/utils/common.py`, `cpu_has_amx_support`). It does not exist here, so a processor with AMX is served like one without.
"""

from collections.abc import Callable

import torch

from ._missing import missing
from .attention import decode_attention_cpu, extend_attention_cpu
from .cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .draft_tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

# SGLang looks these two up as operators, not as functions of this module.
for _operator in (decode_attention_cpu, extend_attention_cpu):
    setattr(torch.ops.sgl_kernel, _operator.__name__, _operator)

if not torch.backends.cuda.is_built():
    # SGLang's drafter with latent attention waits for CUDA wherever it runs (srt/models/kimi_k25_eagle3.py, `set_embed`).
    torch.cuda.synchronize = lambda device=None: None  # noqa: ARG005 - torch's signature


def __getattr__(name: str) -> Callable[..., object]:
    if not name.endswith("_cpu"):
        raise AttributeError(name)  # SGLang's guarded imports of CUDA names rely on it
    return missing(name)
