"""The stand-in's attention against PyTorch's own, over a shuffled paged cache."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from remote.engines.sglang_cpu.sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu

HEADS, GROUPS, WIDTH, SLOTS = 6, 2, 16, 256
SCALE = WIDTH**-0.5


class Cache(NamedTuple):
    """A paged cache in which every request's slots lie anywhere."""

    keys: Tensor
    values: Tensor
    req_to_token: Tensor
    requests: Tensor
    lengths: Tensor

    def rows(self, row: int) -> Tensor:
        return self.req_to_token[self.requests[row], : self.lengths[row]].long()


def make_cache(lengths: list[int], dtype: torch.dtype = torch.float32) -> Cache:
    generator = torch.Generator().manual_seed(sum(lengths))
    slots = torch.randperm(SLOTS, generator=generator).int()
    table, used = torch.zeros(len(lengths) + 3, max(lengths), dtype=torch.int32), 0
    requests = torch.randperm(len(lengths) + 3, generator=generator)[: len(lengths)]
    for request, length in zip(requests, lengths, strict=True):
        table[request, :length] = slots[used : used + length]
        used += length
    keys, values = (torch.randn(SLOTS, GROUPS, WIDTH, generator=generator).to(dtype) for _ in range(2))
    return Cache(keys, values, table, requests, torch.tensor(lengths))


def reference(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """query [n, H, D], keys and values [m, Hk, D] -> [n, H, D], by PyTorch."""
    by_head = [tensor.float().transpose(0, 1).unsqueeze(0) for tensor in (query, keys, values)]
    mixed = scaled_dot_product_attention(*by_head, attn_mask=visible, scale=SCALE, enable_gqa=True)
    return mixed[0].transpose(0, 1)


def queries(rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, HEADS, WIDTH, generator=torch.Generator().manual_seed(rows)).to(dtype)


def decode(cache: Cache, query: Tensor, *, logit_cap: float = 0.0, sliding_window: int = 0) -> Tensor:
    output = torch.empty_like(query)
    decode_attention_cpu(
        *(query, cache.keys, cache.values, None, None, output, None, None, torch.empty(0), torch.empty(0)),
        *(cache.req_to_token, cache.requests, cache.lengths, SCALE, logit_cap),
        sliding_window=sliding_window,
    )
    return output


def extend(
    cache: Cache,
    new: list[int],
    query: Tensor,
    *,
    fresh: tuple[Tensor, Tensor] | None = None,
    tree_mask: Tensor | None = None,
    sliding_window: int = 0,
) -> Tensor:
    output = torch.empty_like(query)
    counts = torch.tensor(new)
    keys, values = fresh or (None, None)
    extend_attention_cpu(
        *(query, keys, values, output, cache.keys, cache.values, None, None, cache.req_to_token, cache.requests),
        *(cache.lengths, counts, counts.cumsum(0) - counts, max(new), SCALE, 0.0),
        tree_mask=tree_mask,
        sliding_window=sliding_window,
    )
    return output


def causal(new: int, length: int, window: int = 0) -> Tensor:
    visible = torch.ones(new, length, dtype=torch.bool).tril(length - new)
    return visible & ~torch.ones(new, length, dtype=torch.bool).tril(length - new - window) if window else visible


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_new_token_sees_its_whole_request(dtype: torch.dtype):
    cache, query = make_cache([1, 7, 40], dtype), queries(3, dtype)
    output = decode(cache, query)
    for row in range(3):
        expected = reference(query[row : row + 1], cache.keys[cache.rows(row)], cache.values[cache.rows(row)])
        torch.testing.assert_close(output[row : row + 1], expected.to(dtype))


def test_one_new_token_is_stored_before_it_is_seen():
    cache, query = make_cache([5, 9]), queries(2)
    key, value = queries(2)[:, :GROUPS] + 1, queries(2)[:, GROUPS : 2 * GROUPS]
    loc = torch.stack([cache.rows(0)[-1], cache.rows(1)[-1]])
    output = torch.empty_like(query)
    decode_attention_cpu(
        *(query, cache.keys, cache.values, None, None, output, key, value, loc, torch.empty(0)),
        *(cache.req_to_token, cache.requests, cache.lengths, SCALE, 0.0),
    )
    torch.testing.assert_close(cache.keys[loc], key)
    torch.testing.assert_close(cache.values[loc], value)
    torch.testing.assert_close(output, decode(cache, query))


def test_a_sliding_window_hides_the_older_tokens():
    cache, query = make_cache([4, 30]), queries(2)
    output = decode(cache, query, sliding_window=8)
    slots = cache.rows(1)[-8:]
    torch.testing.assert_close(output[1:2], reference(query[1:2], cache.keys[slots], cache.values[slots]))
    torch.testing.assert_close(output[:1], decode(cache, query)[:1])


def test_a_logit_cap_is_a_hyperbolic_tangent():
    cache, query = make_cache([12]), queries(1)
    keys, values = cache.keys[cache.rows(0)], cache.values[cache.rows(0)]
    logits = torch.einsum("hd,mhd->hm", query[0], keys.repeat_interleave(HEADS // GROUPS, 1)) * SCALE
    weights = torch.softmax(0.5 * torch.tanh(logits / 0.5), -1)
    expected = torch.einsum("hm,mhd->hd", weights, values.repeat_interleave(HEADS // GROUPS, 1))
    torch.testing.assert_close(decode(cache, query, logit_cap=0.5)[0], expected)


@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("cached", [True, False], ids=["in the cache", "beside the cache"])
def test_several_new_tokens_see_what_came_before_them(cached: bool, window: int):
    lengths, new = [3, 25, 11], [3, 10, 1]
    cache, query = make_cache(lengths), queries(sum(new))
    fresh = None
    if not cached:
        # What is fresh is not in the cache yet: whatever lies in its slots must not be looked at.
        slots = [cache.rows(row)[length - n :] for row, (length, n) in enumerate(zip(lengths, new, strict=True))]
        fresh = (cache.keys[torch.cat(slots)].clone(), cache.values[torch.cat(slots)].clone())
        whole = (cache.keys.clone(), cache.values.clone())
        cache.keys[torch.cat(slots)] = float("nan")
        cache.values[torch.cat(slots)] = float("nan")
    else:
        whole = (cache.keys, cache.values)
    output = extend(cache, new, query, fresh=fresh, sliding_window=window)
    start = 0
    for row, (length, n) in enumerate(zip(lengths, new, strict=True)):
        slots = cache.rows(row)
        expected = reference(query[start : start + n], whole[0][slots], whole[1][slots], causal(n, length, window))
        torch.testing.assert_close(output[start : start + n], expected)
        start += n


def test_a_tree_mask_replaces_the_causal_one():
    lengths, new = [9, 14], [4, 4]
    cache, query = make_cache(lengths), queries(8)
    # Two chains that grow from the root: 0-1-3 and 0-2.
    tree = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=torch.bool)
    masks = [torch.cat([torch.ones(4, length - 4, dtype=torch.bool), tree], 1) for length in lengths]
    output = extend(cache, new, query, tree_mask=tree.repeat(2, 1).reshape(-1))
    for row, mask in enumerate(masks):
        rows, slots = slice(4 * row, 4 * row + 4), cache.rows(row)
        torch.testing.assert_close(output[rows], reference(query[rows], cache.keys[slots], cache.values[slots], mask))


def test_a_quantised_cache_is_refused():
    cache = make_cache([4])
    cache = cache._replace(keys=cache.keys.to(torch.float8_e4m3fn))
    with pytest.raises(NotImplementedError, match="float8"):
        decode(cache, queries(1))
