"""Counting answer tokens and building the draft vocabulary at Kimi-K2.5's size, beside the loop that trainers publish.

Ours: `StoreReader.token_counts` (numpy bincount over the loss-masked ids) and `Mapping.from_counts`, 17.3 M tokens, V = 163,840,
D = 32,000. Peer: the algorithm of SpecForge 0.2.0 (`specforge/data/preprocessing.py`: a Counter over the tokens, the most common D
sorted, and `t2d = [i in used for i in range(V)]` with `used` a list, O(V * D)), written out here so that the bench needs no trainer
installed. Both run in this process on the same ids; the results are compared, then the times and their ratio are printed.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from remote.artifacts.mapping import Mapping

TOKENS = 17_300_000
TARGET, DRAFT = 163_840, 32_000
_T = TypeVar("_T")


def timed(what: Callable[[], _T]) -> tuple[_T, float]:
    """The result of `what` and the seconds that it took."""
    started = time.perf_counter()
    result = what()
    return result, time.perf_counter() - started


def ours(ids: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Target ids of the draft vocabulary, seconds to count, seconds to build."""
    counts, counting = timed(lambda: np.bincount(ids[mask], minlength=TARGET))
    mapping, building = timed(lambda: Mapping.from_counts(counts, DRAFT))
    return mapping.target_ids, counting, building


def peer(ids: list[int]) -> tuple[list[int], float, float]:
    """The same by the published loop."""
    counts, counting = timed(lambda: Counter(ids))

    def build() -> list[int]:
        used = sorted(token for token, _ in counts.most_common(DRAFT))
        marks = [token in used for token in range(TARGET)]
        assert sum(marks) == DRAFT
        return used

    used, building = timed(build)
    return used, counting, building


def main() -> None:
    """Run both on Zipf-distributed ids and print."""
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, TARGET + 1) ** 1.1
    ids = rng.permutation(TARGET)[rng.choice(TARGET, TOKENS, p=weights / weights.sum())]
    mask = np.ones(TOKENS, np.bool_)
    our_ids, our_count, our_build = ours(ids, mask)
    peer_ids, peer_count, peer_build = peer(ids.tolist())
    same = len(set(our_ids.tolist()) & set(peer_ids)) / DRAFT
    print(f"{TOKENS:,} tokens, {TARGET:,} -> {DRAFT:,}; {same:.2%} of the chosen tokens are the same (ties differ)")
    print(f"{'':8} {'ours':>10} {'peer':>10} {'ratio':>8}")
    for name, one, other in (("count", our_count, peer_count), ("build", our_build, peer_build)):
        print(f"{name:8} {one:9.3f}s {other:9.3f}s {other / one:7.1f}x")
    print(
        f"{'both':8} {our_count + our_build:9.3f}s {peer_count + peer_build:9.3f}s "
        f"{(peer_count + peer_build) / (our_count + our_build):7.1f}x"
    )


if __name__ == "__main__":
    main()
