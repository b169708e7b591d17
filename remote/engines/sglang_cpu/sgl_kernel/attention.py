"""Attention over SGLang's paged key-value cache, with the signatures of the compiled operators.

A request's cache rows are `req_to_token[request, :length]`; sums and softmax are in float32, as in the compiled kernels.
Cross-attention, attention sinks and FP8 caches are refused with NotImplementedError.
"""

import torch
from torch import Tensor

_CACHE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, logit_cap: float, visible: Tensor | None) -> Tensor:
    """Grouped-query attention of one request: query [n, H, D], key [m, Hk, D], value [m, Hk, Dv] -> float32 [n, H, Dv].

    `visible` [n, m] is true where a query sees a key; None means everywhere. `logit_cap` 0 means no cap.
    """
    rows, heads, width = query.shape
    groups = key.shape[1]
    # The heads of a group share their keys: one matrix product a group instead of repeating keys.
    grouped = query.float().view(rows, groups, heads // groups, width).permute(1, 2, 0, 3).reshape(groups, -1, width)
    logits = torch.bmm(grouped, key.float().permute(1, 2, 0)) * scale
    if logit_cap > 0:
        logits = logit_cap * torch.tanh(logits / logit_cap)
    if visible is not None:
        by_head = logits.view(groups, heads // groups, rows, -1)
        logits = by_head.masked_fill(~visible, float("-inf")).view_as(logits)
    mixed = torch.bmm(torch.softmax(logits, -1), value.float().transpose(0, 1))
    return mixed.view(groups, heads // groups, rows, -1).permute(2, 0, 1, 3).reshape(rows, heads, -1)


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float | None,  # noqa: ARG001 - the scales of quantised caches, which are refused
    v_scale: float | None,  # noqa: ARG001
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,  # noqa: ARG001 - scratch space of the compiled kernel
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool = False,  # noqa: FBT001, FBT002 - the operator's signature
    sliding_window: int = 0,
    encoder_lens: Tensor | None = None,  # noqa: ARG001
    sinks: Tensor | None = None,
) -> None:
    """One new token a request: store `key` and `value` at `loc`, attend over the request's rows, write into `output`.

    query [B, H, D], k_buffer [slots, Hk, D], v_buffer [slots, Hk, Dv], output [B, H, Dv].
    """
    _refuse(k_buffer, is_cross_attn=is_cross_attn, sinks=sinks)
    if key is not None:
        k_buffer[loc] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        # With latent attention the values are a view of the keys.
        if value is not None and v_buffer.data_ptr() != k_buffer.data_ptr():
            v_buffer[loc] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for row, (request, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        first = max(0, length - sliding_window) if sliding_window > 0 else 0
        slots = req_to_token[request, first:length].long()
        output[row] = attend(query[row : row + 1], k_buffer[slots], v_buffer[slots], sm_scale, logit_cap, None)[0]


def extend_attention_cpu(
    q_extend: Tensor,
    k_extend: Tensor | None,
    v_extend: Tensor | None,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float | None,  # noqa: ARG001 - the scales of quantised caches, which are refused
    v_scale: float | None,  # noqa: ARG001
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,  # noqa: ARG001 - sizes the compiled kernel's scratch space
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool = False,  # noqa: FBT001, FBT002 - the operator's signature
    sliding_window: int = 0,
    encoder_lens: Tensor | None = None,  # noqa: ARG001
    sinks: Tensor | None = None,
    tree_mask: Tensor | None = None,
    is_causal: bool = True,  # noqa: FBT001, FBT002
) -> None:
    """Several new tokens a request: they see the request's cached rows and each other; written into `o_extend`.

    q_extend [N, H, D]; k_extend, v_extend [N, …] or None when the new rows are in the cache already. `tree_mask` (flat bool,
    [new, new] a request: SGLang builds it `QLEN_ONLY` on a CPU) says what the new rows of a draft tree see of each other.
    """
    _refuse(k_buffer, is_cross_attn=is_cross_attn, sinks=sinks)
    masked = 0
    for request, length, new, start in zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        strict=True,
    ):
        rows = slice(start, start + new)
        cached = length if k_extend is None else length - new
        slots = req_to_token[request, :cached].long()
        key = _joined(k_buffer, slots, None if k_extend is None else k_extend[rows])
        value = _joined(v_buffer, slots, None if v_extend is None else v_extend[rows])
        if tree_mask is not None:
            among_new = tree_mask.view(-1)[masked : masked + new * new].view(new, new).bool()
            visible = torch.cat([torch.ones(new, length - new, dtype=torch.bool), among_new], 1)
            masked += new * new
        else:
            visible = _visible(new, length, sliding_window, is_causal=is_causal)
        o_extend[rows] = attend(q_extend[rows], key, value, sm_scale, logit_cap, visible).to(o_extend.dtype)


def _joined(buffer: Tensor, slots: Tensor, new: Tensor | None) -> Tensor:
    cached = buffer[slots]
    if new is None:
        return cached
    # The first chunk of latent attention is not compressed: its heads are wider than the cache's, and nothing is cached yet.
    fresh = new if new.dim() == 3 else new.view(len(new), -1, buffer.shape[2])
    return torch.cat([cached.to(fresh.dtype), fresh]) if len(slots) else fresh


def _visible(new: int, length: int, sliding_window: int, *, is_causal: bool) -> Tensor:
    query, key = torch.arange(length - new, length).view(-1, 1), torch.arange(length).view(1, -1)
    visible = key <= query if is_causal else torch.ones(new, length, dtype=torch.bool)
    return visible & (key > query - sliding_window) if sliding_window > 0 else visible


def _refuse(buffer: Tensor, *, is_cross_attn: bool, sinks: Tensor | None) -> None:
    if is_cross_attn or sinks is not None:
        raise NotImplementedError("Roost's CPU stand-in has no cross-attention and no attention sinks")
    if buffer.dtype not in _CACHE_DTYPES:
        raise NotImplementedError(f"Roost's CPU stand-in has no key-value cache of {buffer.dtype}")
