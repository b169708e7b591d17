"""Slots and draft inputs: small cases worked out by hand, and what must hold for any."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from remote.engines.sglang_cpu.sgl_kernel import cache

POOL = 12


@given(st.lists(st.tuples(st.integers(0, POOL), st.integers(0, POOL)).map(sorted), min_size=1, max_size=5))
def test_slots_that_are_handed_out_can_be_read_back(ranges: list[list[int]]):
    requests = torch.arange(len(ranges)).flip(0)
    start, end = torch.tensor(ranges).T
    count = int((end - start).sum())
    slots = torch.randperm(100)[:count]
    table = torch.full((len(ranges), POOL), -1, dtype=torch.int32)
    cache.assign_req_to_token_pool_cpu(requests, table, start, end, slots, POOL)
    assert int((table != -1).sum()) == count
    packed = torch.zeros(count, dtype=torch.int64)
    cache.assign_extend_cache_locs_cpu(requests, table, start, end, packed, POOL)
    assert packed.equal(slots)


def test_the_slots_after_the_committed_tokens_are_the_drafts():
    table = torch.arange(3 * POOL, dtype=torch.int32).view(3, POOL)
    slots = torch.zeros(8, dtype=torch.int64)
    cache.assign_draft_cache_locs_contiguous_cpu(torch.tensor([2, 0]), table, torch.tensor([3, 1]), slots, POOL, 2, 2)
    assert slots.tolist() == [27, 28, 29, 30, 1, 2, 3, 4]


def test_every_branch_sees_the_prefix_and_its_own_slots():
    table = torch.arange(2 * POOL, dtype=torch.int32).view(2, POOL)
    rows = cache.build_draft_decode_metadata_cpu(table, torch.tensor([1]), torch.tensor([3]), 2, 2, POOL)
    assert rows[0, :5].tolist() == [12, 13, 14, 15, 16]
    assert rows[1, :5].tolist() == [12, 13, 14, 17, 18]


def test_rows_move_in_every_layer_even_when_they_overlap():
    layers = [torch.arange(20, dtype=torch.float32).view(5, 4) + 100 * layer for layer in range(2)]
    before = [layer.clone() for layer in layers]
    addresses = torch.tensor([layer.data_ptr() for layer in layers])
    strides = torch.tensor([layer.stride(0) * layer.element_size() for layer in layers])
    cache.copy_all_layer_kv_cache_cpu(addresses, strides, torch.tensor([1, 2]), torch.tensor([2, 1]))
    for now, then in zip(layers, before, strict=True):
        assert now.equal(then[[0, 2, 1, 3, 4]])


def test_the_bonus_token_is_the_last_accepted_one():
    bonus = torch.zeros(2, dtype=torch.int64)
    cache.fill_bonus_tokens_cpu(torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([1, 3]), bonus, 3)
    assert bonus.tolist() == [5, 10]


def test_slots_of_accepted_tokens_are_packed():
    packed = torch.full((4,), -1)
    cache.fill_accept_out_cache_loc_cpu(
        torch.tensor([[0, 2, -1], [3, -1, -1]]), torch.tensor([10, 11, 12, 13, 14, 15]), packed
    )
    assert packed.tolist() == [10, 12, 13, -1]


def test_ids_shift_left_and_the_new_token_comes_last_or_where_it_is_told():
    start, counts, fresh = torch.tensor([0, 3]), torch.tensor([3, 1]), torch.tensor([[70], [80]])
    ids = torch.tensor([1, 2, 3, 4])
    cache.rotate_input_ids_cpu(ids, start, counts, fresh)
    assert ids.tolist() == [2, 3, 70, 80]
    ids = torch.tensor([1, 2, 3, 4])
    cache.rotate_input_ids_cpu(ids, start, counts, fresh, torch.tensor([1, 3]))
    assert ids.tolist() == [2, 70, 3, 80]
