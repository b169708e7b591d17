"""What a draft vocabulary can reach on given answers; pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.mapping import Mapping
from remote.protocol.mappings import CurvePoint

Array = np.ndarray[Any, Any]

_SHARES_OF_TARGET = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_SHARES_OF_DRAFT = (1 / 4, 1 / 2, 3 / 4, 1, 3 / 2, 2)


class Answers(NamedTuple):
    """Answer tokens [n] one after the other, and where in them each unbroken stretch begins [k], ascending from 0."""

    tokens: Array
    starts: Array


def answers_of(ids: Array, mask: Array, sample_starts: Array) -> Answers:
    """The masked ids [n] of samples that begin at `sample_starts`; a stretch ends with its sample or where the mask does."""
    places = np.flatnonzero(mask)
    if not len(places):
        return Answers(ids[:0], places)
    sample = np.searchsorted(sample_starts, places, side="right")
    breaks = (np.diff(places) > 1) | (np.diff(sample) > 0)
    return Answers(ids[places], np.concatenate([[0], np.flatnonzero(breaks) + 1]))


def after_first(answers: Answers) -> Answers:
    """What is left of every stretch when the prompt's own pass has made its first token, as acceptance lengths are counted."""
    kept = np.ones(len(answers.tokens), np.bool_)
    kept[answers.starts] = False
    lengths = np.diff(np.append(answers.starts, len(answers.tokens))) - 1
    lengths = lengths[lengths > 0]
    return Answers(answers.tokens[kept], np.cumsum(lengths) - lengths)


def verifications(covered: Array, starts: Array, proposals: int) -> int:
    """How many verifications of so many proposals a perfect drafter needs for answers whose tokens are `covered` or not.

    A verification takes the covered tokens that follow, at most `proposals`, and one token of the target's own. So of a
    stretch of L covered tokens and one that is not, L // (proposals + 1) + 1 are needed.
    """
    if not len(covered):
        return 0
    last = np.append(starts[1:], len(covered)) - 1
    ends = np.union1d(np.flatnonzero(~covered), last)
    lengths = np.diff(ends, prepend=-1)
    step = proposals + 1
    return int(np.where(covered[ends], -(-lengths // step), (lengths - 1) // step + 1).sum())


def best_coverage(counts: Array, sizes: Iterable[int]) -> list[CurvePoint]:
    """The coverage of the most frequent D tokens for each D of `sizes`, ascending; `counts` [V] hold something."""
    total = counts.sum()
    cumulative = np.cumsum(np.sort(counts)[::-1])
    return [
        CurvePoint(draft_vocab_size=size, coverage=float(cumulative[size - 1] / total))
        for size in sorted({min(size, len(counts)) for size in sizes if size > 0})
    ]


def curve_sizes(target_vocab_size: int, draft_vocab_size: int) -> list[int]:
    """Sizes of draft vocabularies that are worth a look beside `draft_vocab_size`, ascending."""
    sizes = {round(target_vocab_size * share) for share in _SHARES_OF_TARGET}
    sizes |= {round(draft_vocab_size * share) for share in _SHARES_OF_DRAFT}
    return sorted(size for size in sizes if 0 < size <= target_vocab_size)


def until_full(curve: list[CurvePoint], own_size: int) -> list[CurvePoint]:
    """A curve without the points beyond the first that covers all, which say nothing new, but with `own_size`."""
    full = next((place for place, point in enumerate(curve) if point.coverage >= 1), len(curve))
    return [point for place, point in enumerate(curve) if place <= full or point.draft_vocab_size == own_size]


def missing_ids(counts: Array, mapping: Mapping) -> Array:
    """The counted tokens without a draft id, the most frequent first, of equal ones the lower id."""
    outside = np.flatnonzero((counts > 0) & ~mapping.t2d)
    return outside[np.argsort(-counts[outside], kind="stable")]
