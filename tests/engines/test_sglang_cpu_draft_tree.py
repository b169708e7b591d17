"""Drafted trees: links, mask and positions of small known trees, and the greedy walk through any tree."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from remote.engines.sglang_cpu.sgl_kernel.draft_tree import (
    FULL_MASK,
    QLEN_ONLY,
    build_tree_kernel_efficient_cpu,
    verify_tree_greedy_cpu,
)


class Tree:
    """The outputs of the builder for a batch."""

    def __init__(self, parents: list[list[int]], selected: list[list[int]], lengths: list[int], topk: int, mode: int):
        batch, nodes = len(lengths), len(selected[0]) + 1
        size = sum(nodes * ((length if mode == FULL_MASK else 0) + nodes) for length in lengths)
        self.mask = torch.ones(size, dtype=torch.bool)
        self.positions = torch.zeros(batch * nodes, dtype=torch.int64)
        self.index, self.child, self.sibling = (torch.full((batch, nodes), -1) for _ in range(3))
        build_tree_kernel_efficient_cpu(
            *(torch.tensor(parents), torch.tensor(selected), torch.tensor(lengths), self.mask, self.positions),
            *(self.index, self.child, self.sibling, topk, nodes - 1, nodes, mode),
        )


CHAIN = ([[-1, 0, 1]], [[0, 1, 2]])
"""Top-k 1: every candidate grows from the one before."""

FORK = ([[-1, 0, 1]], [[0, 1, 2, 4]])
"""Top-k 2: candidates 0 and 1 grow from the root, 2 and 3 from candidate 0, 4 and 5 from candidate 1."""


def test_a_chain_is_linked_in_a_row():
    tree = Tree(*CHAIN, [7], topk=1, mode=QLEN_ONLY)
    assert tree.index.tolist() == [[0, 1, 2, 3]]
    assert tree.child.tolist() == [[1, 2, 3, -1]]
    assert tree.sibling.tolist() == [[-1, -1, -1, -1]]
    assert tree.positions.tolist() == [7, 8, 9, 10]
    assert tree.mask.view(4, 4).equal(torch.ones(4, 4, dtype=torch.bool).tril())


def test_a_fork_has_siblings_and_each_branch_sees_itself_only():
    tree = Tree(*FORK, [10], topk=2, mode=QLEN_ONLY)
    assert tree.child.tolist() == [[1, 3, 4, -1, -1]]
    assert tree.sibling.tolist() == [[-1, 2, -1, -1, -1]]
    assert tree.positions.tolist() == [10, 11, 11, 12, 12]
    assert tree.mask.view(5, 5).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 1, 0, 1],
    ]


def test_the_full_mask_shows_every_request_its_own_prefix():
    parents, selected = CHAIN
    tree = Tree(parents * 2, selected * 2, [3, 5], topk=1, mode=FULL_MASK)
    assert tree.index.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tree.positions.tolist() == [3, 4, 5, 6, 5, 6, 7, 8]
    lower = torch.ones(4, 4, dtype=torch.bool).tril()
    first, second = tree.mask[:28].view(4, 7), tree.mask[28:].view(4, 9)
    for mask, prefix in ((first, 3), (second, 5)):
        assert mask[:, :prefix].all()
        assert mask[:, prefix:].equal(lower)


def test_a_bit_packed_mask_is_refused():
    with pytest.raises(NotImplementedError, match="bit-packed"):
        Tree(*CHAIN, [3], topk=1, mode=2)


def verify(
    tree: Tree, candidates: list[list[int]], target: list[list[int]], steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    batch = len(candidates)
    predicts = torch.full((batch * len(candidates[0]),), -1, dtype=torch.int32)
    accepted, counts = torch.full((batch, steps + 1), -1, dtype=torch.int32), torch.zeros(batch, dtype=torch.int32)
    verify_tree_greedy_cpu(
        *(predicts, accepted, counts, torch.tensor(candidates), tree.index, tree.child, tree.sibling),
        torch.tensor(target),
    )
    return predicts, accepted, counts


def test_the_walk_takes_the_branch_that_the_target_chose():
    tree = Tree(*FORK, [10], topk=2, mode=QLEN_ONLY)
    # Drafted after the token 1: 11 or 12; 13 after 11, 14 after 12. The target says 12, then 14, then 99.
    predicts, accepted, counts = verify(tree, [[1, 11, 12, 13, 14]], [[12, 50, 14, 60, 99]], steps=3)
    assert accepted.tolist() == [[0, 2, 4, -1]]
    assert counts.tolist() == [2]
    assert [predicts[node].item() for node in (0, 2, 4)] == [12, 14, 99]


TOKENS = st.lists(st.integers(0, 2), min_size=8, max_size=8)


@given(TOKENS, TOKENS)
def test_a_chain_is_accepted_up_to_the_first_disagreement(drafted: list[int], wanted: list[int]):
    parents, selected = CHAIN
    tree = Tree(parents * 2, selected * 2, [3, 5], topk=1, mode=QLEN_ONLY)
    candidates, target = [drafted[:4], drafted[4:]], [wanted[:4], wanted[4:]]
    predicts, accepted, counts = verify(tree, candidates, target, steps=3)
    for row in range(2):
        agreed = 0
        while agreed < 3 and candidates[row][agreed + 1] == target[row][agreed]:
            agreed += 1
        assert counts[row] == agreed
        path = [node for node in accepted[row].tolist() if node != -1]
        assert path == [4 * row + node for node in range(agreed + 1)]
        # Accepted tokens and the bonus token are the target's own greedy continuation.
        assert [predicts[node].item() for node in path] == target[row][: agreed + 1]
