"""The draft tree and its greedy verification; layouts as SGLang 0.5.23 uses them (`srt/speculative/eagle_utils.py`)."""

from torch import Tensor

FULL_MASK = 0
QLEN_ONLY = 1


class _Tree:
    """The drafted tokens of one request: who is whose parent."""

    def __init__(self, selected: list[int], parents: list[int], topk: int) -> None:
        self._selected = selected
        self._parents = parents
        self._topk = topk

    def parent(self, token: int) -> int | None:
        """The tree position of a draft token's parent (0 = the root); None when the parent was not selected."""
        row = self._selected[token - 1] // self._topk
        if row == 0:
            return 0
        wanted = self._parents[row]
        return self._selected.index(wanted) + 1 if wanted in self._selected else None

    def ancestors(self, token: int, depth: int) -> list[int]:
        """The token itself and its ancestors below the root, at most `depth`."""
        line: list[int] = []
        current: int | None = token
        while current and len(line) < depth:
            line.append(current)
            current = self.parent(current)
        return line


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
    """Fills links, positions and attention mask of every request's tree (its root is the last verified token)."""
    count, mode = draft_token_num, int(tree_mask_mode)
    if mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError("a bit-packed tree mask is not part of the CPU stand-in")
    mask, place = tree_mask.view(-1), positions.view(-1)
    index, child, sibling = (t.view(-1, count) for t in (retrive_index, retrive_next_token, retrive_next_sibling))
    before = 0
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = parent_list[request].tolist() if parent_list.numel() else []
        tree = _Tree(selected_index[request].tolist(), parents, topk)
        for token in range(count - 1, 0, -1):
            index[request, token] = request * count + token
            parent = tree.parent(token)
            if parent is None:
                continue
            if int(child[request, parent]) != -1:
                sibling[request, token] = child[request, parent].item()
            child[request, parent] = token
        index[request, 0] = request * count
        place[request * count] = length
        for token in range(count):
            wide = count * count * request + before * count + (length + count) * token + length
            row = wide if mode == FULL_MASK else count * count * request + count * token
            mask[row] = 1
            mask[row + 1 : row + count] = 0
            line = tree.ancestors(token, depth)
            for ancestor in line:
                mask[row + ancestor] = 1
            if token:
                place[request * count + token] = length + len(line)
        before += length


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
    """Walk each tree from its root along the target's own greedy choices; the last one is the bonus token."""
    predicted, chosen = predicts.view(-1), target_predict.reshape(-1)
    for request in range(candidates.shape[0]):
        last = int(retrive_index[request, 0])
        accept_index[request, 0] = last
        accepted = current = 0
        for _ in range(1, accept_index.shape[1]):
            current = int(retrive_next_token[request, current])
            wanted = int(chosen[last])
            while current != -1 and int(candidates[request, current]) != wanted:
                current = int(retrive_next_sibling[request, current])
            if current == -1:
                break
            predicted[last] = wanted
            accepted += 1
            last = int(retrive_index[request, current])
            accept_index[request, accepted] = last
        accept_token_num[request] = accepted
        predicted[last] = chosen[last].to(predicted.dtype)
