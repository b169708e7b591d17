"""Bookkeeping of cache slots and draft inputs; every function writes into the tensors that SGLang hands it."""

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,  # noqa: ARG001 - the row stride, which a tensor knows itself
) -> None:
    """Hand the slots in `out_cache_loc`, in order, to positions [start, end) of each request in `req_to_token`."""
    taken = 0
    for request, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        slots = out_cache_loc[taken : taken + end - start]
        req_to_token[request, start:end] = slots.to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,  # noqa: ARG001
) -> None:
    """The inverse: pack the slots of positions [start, end) of each request into `out_cache_loc`."""
    filled = 0
    for request, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        out_cache_loc[filled : filled + end - start] = req_to_token[request, start:end].to(out_cache_loc.dtype)
        filled += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,  # noqa: ARG001
    topk: int,
    num_cols: int,
) -> None:
    """Pack each request's next `topk * num_cols` slots after its committed tokens into `out_cache_loc`."""
    count = topk * num_cols
    packed = out_cache_loc.view(-1)
    for row, (request, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        slots = req_to_token[request, length : length + count]
        packed[row * count : (row + 1) * count] = slots.to(packed.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """A slot table [B * topk, pool_len] with a row a draft branch: the committed prefix, then the branch's own slots."""
    table = torch.zeros(len(seq_lens) * topk, pool_len, dtype=req_to_token.dtype)
    for index, (request, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            row, own = index * topk + branch, length + branch * num_steps
            table[row, :length] = req_to_token[request, :length]
            table[row, length : length + num_steps] = req_to_token[request, own : own + num_steps]
    return table


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Move whole cache rows, in every layer: `data_ptrs` are the buffers' addresses, `strides` the bytes of a row."""
    sources, targets = src_loc.reshape(-1).tolist(), tgt_loc.reshape(-1).tolist()
    for address, stride in zip(data_ptrs.reshape(-1).tolist(), strides.reshape(-1).tolist(), strict=True):
        # All rows are read before any is written: sources and targets may overlap.
        rows = [ctypes.string_at(address + source * stride, stride) for source in sources]
        for target, row in zip(targets, rows, strict=True):
            ctypes.memmove(address + target * stride, row, stride)


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """The last accepted token of each request: entry `accept_len - 1` of its `accept_stride` entries."""
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.reshape(-1).long() - 1
    bonus_tokens.view(-1)[: last.numel()] = accept_tokens.reshape(-1)[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Pack the slots of accepted tokens (`accept_index` entries other than -1) into `accept_out_cache_loc`."""
    accepted = accept_index.reshape(-1)
    accepted = accepted[accepted != -1].long()
    slots = out_cache_loc.reshape(-1)[accepted]
    accept_out_cache_loc.view(-1)[: accepted.numel()] = slots.to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's ids one to the left and put its new token last (or at `select_index`)."""
    places = None if select_index is None else select_index.reshape(-1).tolist()
    fresh = topk_index.reshape(-1).to(input_ids.dtype)
    for row, (start, count) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if count == 0:
            continue
        input_ids[start : start + count - 1] = input_ids[start + 1 : start + count].clone()
        input_ids[start + count - 1 if places is None else places[row]] = fresh[row]


def _ranges(requests: Tensor, starts: Tensor, ends: Tensor) -> list[tuple[int, int, int]]:
    columns = (tensor.reshape(-1).tolist() for tensor in (requests, starts, ends))
    return list(zip(*columns, strict=True))
