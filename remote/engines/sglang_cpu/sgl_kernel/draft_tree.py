"""The tree of drafted tokens: its links and mask, and the greedy walk that accepts a path through it.

Node 0 of a request's tree is its last verified token; nodes 1 to `draft_token_num - 1` are drafted. Links are node numbers
within the request, -1 for none; `retrive_index` (SGLang's spelling) numbers nodes across the batch.
"""

from torch import Tensor

FULL_MASK, QLEN_ONLY = 0, 1
"""Values of SGLang's `TreeMaskMode`: the mask's rows cover prefix and draft, or the draft alone."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fill links, positions [B * n] and the mask (true = visible) of each request's tree of n = `draft_token_num` nodes.

    `selected_index` [B, n - 1] names each node's place among all candidates, `parent_list` [B, …] the candidate that each group
    of `topk` candidates grew from. The mask arrives filled with true; raises NotImplementedError for a bit-packed one.
    """
    mode, count = int(tree_mask_mode), draft_token_num
    if mode not in {FULL_MASK, QLEN_ONLY}:
        raise NotImplementedError("Roost's CPU stand-in has no bit-packed tree mask")
    mask, depths = tree_mask.view(-1), positions.view(-1)
    indices = retrive_index.view(-1, count)
    children, siblings = retrive_next_token.view(-1, count), retrive_next_sibling.view(-1, count)
    offset = 0
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = _parents(selected_index[request].tolist(), parent_list[request].tolist(), topk)
        indices[request] = indices.new_tensor(range(request * count, (request + 1) * count))
        _link(parents, children[request], siblings[request])
        prefix = length if mode == FULL_MASK else 0
        rows = mask[offset : offset + count * (prefix + count)].view(count, prefix + count)[:, prefix:]
        offset += count * (prefix + count)
        for node in range(count):
            path = _path_to_root(node, parents, depth)
            rows[node] = False
            rows[node, path] = True
            rows[node, 0] = True
            depths[request * count + node] = length + len(path) - (0 in path)


def _parents(selected: list[int], parents_of_groups: list[int], topk: int) -> list[int | None]:
    """The parent node of each node; None for the root and for a node whose parent was not selected."""
    parents: list[int | None] = [None]
    for place in selected:
        group = place // topk
        if group == 0:
            parents.append(0)
        else:
            parent = parents_of_groups[group]
            parents.append(selected.index(parent) + 1 if parent in selected else None)
    return parents


def _link(parents: list[int | None], children: Tensor, siblings: Tensor) -> None:
    """Link each parent to its first child and the children among each other, in ascending order."""
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        if parent is not None:
            siblings[node] = children[parent]
            children[parent] = node


def _path_to_root(node: int, parents: list[int | None], depth: int) -> list[int]:
    """`node` and its ancestors, at most `depth` drafted ones, the root last."""
    path: list[int] = [node]
    while len(path) <= depth and (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's own choices and keep what agrees.

    candidates, links and target_predict [B, n]; writes the accepted nodes into `accept_index` [B, steps + 1], their number
    without the root into `accept_token_num` [B], and the tokens, with the target's bonus token last, into `predicts`.
    """
    chosen, wanted = predicts.view(-1), target_predict.reshape(-1).tolist()
    for request, drafted in enumerate(candidates.tolist()):
        numbers, children = retrive_index[request].tolist(), retrive_next_token[request].tolist()
        siblings = retrive_next_sibling[request].tolist()
        node, accepted = 0, [numbers[0]]
        while len(accepted) < accept_index.shape[1]:
            token = wanted[accepted[-1]]
            node = children[node]
            while node != -1 and drafted[node] != token:
                node = siblings[node]
            if node == -1:
                break
            chosen[accepted[-1]] = token
            accepted.append(numbers[node])
        chosen[accepted[-1]] = wanted[accepted[-1]]
        accept_index[request, : len(accepted)] = accept_index.new_tensor(accepted)
        accept_token_num[request] = len(accepted) - 1
