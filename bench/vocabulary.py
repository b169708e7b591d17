"""Counting answer tokens and building the draft vocabulary at Kimi-K2.5's size, beside the loop that trainers publish.

Ours: `StoreReader.token_counts` (numpy bincount over the loss-masked ids) and `Mapping.from_counts`, 17.3 M tokens, V = 163,840,
D = 32,000. Peers: the algorithm of SpecForge 0.2.0 (`specforge/data/preprocessing.py`: a Counter over the tokens, the most common D
sorted, and `t2d = [i in used for i in range(V)]` with `used` a list, O(V * D)), and that of speculators 0.9.0
(`train/vocab_mapping.py`: a Counter over what `torch.unique` says of each sample, its tokens sorted by count and id), written out here
so that the bench needs no trainer installed. All run in this process on the same ids, as 10,000 samples; the results are compared, then
the times and their ratios to ours are printed.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from remote.artifacts.mapping import Mapping

TOKENS, SAMPLES = 17_300_000, 10_000
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


def specforge(ids: np.ndarray) -> tuple[list[int], float, float]:
    """The same by its published loop."""
    listed = ids.tolist()
    counts, counting = timed(lambda: Counter(listed))

    def build() -> list[int]:
        used = sorted(token for token, _ in counts.most_common(DRAFT))
        marks = [token in used for token in range(TARGET)]
        assert sum(marks) == DRAFT
        return used

    used, building = timed(build)
    return used, counting, building


def speculators(ids: np.ndarray) -> tuple[list[int], float, float]:
    """The same by its published loop."""
    rows = torch.from_numpy(ids).chunk(SAMPLES)

    def count() -> Counter[int]:
        counts: Counter[int] = Counter()
        for row in rows:
            unique, times = row.unique(return_counts=True)
            counts.update(dict(zip(unique.tolist(), times.tolist(), strict=True)))
        return counts

    counts, counting = timed(count)

    def build() -> torch.Tensor:
        chosen = sorted(sorted(counts, key=lambda token: (-counts[token], token))[:DRAFT])
        marks = torch.zeros(TARGET, dtype=torch.bool)
        marks[chosen] = True
        return torch.tensor(chosen, dtype=torch.long)

    used, building = timed(build)
    return used.tolist(), counting, building


def main() -> None:
    """Run both on Zipf-distributed ids and print."""
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, TARGET + 1) ** 1.1
    ids = rng.permutation(TARGET)[rng.choice(TARGET, TOKENS, p=weights / weights.sum())]
    mask = np.ones(TOKENS, np.bool_)
    torch.set_num_threads(1)
    our_ids, *ours_took = ours(ids, mask)
    chosen = set(our_ids.tolist())
    print(f"{TOKENS:,} tokens, {TARGET:,} -> {DRAFT:,}")
    print(f"{'':12}{'count':>10}{'build':>10}{'both':>10}{'ratio':>9}  the same tokens")
    print(f"{'roost':12}{ours_took[0]:9.3f}s{ours_took[1]:9.3f}s{sum(ours_took):9.3f}s")
    for name, peer in (("specforge", specforge), ("speculators", speculators)):
        used, *took = peer(ids)
        same = len(chosen & set(used)) / DRAFT
        print(
            f"{name:12}{took[0]:9.3f}s{took[1]:9.3f}s{sum(took):9.3f}s{sum(took) / sum(ours_took):8.1f}x  {same:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
