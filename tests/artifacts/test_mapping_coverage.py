"""Coverage, the curve, what is missing, and the bound on acceptance against a drafter that is played token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.artifacts.mapping import Mapping
from remote.artifacts.mapping_coverage import (
    answers_of,
    best_coverage,
    curve_sizes,
    missing_ids,
    until_full,
    verifications,
)

COUNTS = np.array([5, 0, 9, 1, 5, 80])


def played(stretches: list[list[bool]], proposals: int) -> int:
    """Verifications of a perfect drafter, one after the other."""
    count = 0
    for stretch in stretches:
        place = 0
        while place < len(stretch):
            accepted = 0
            while accepted < proposals and place < len(stretch) and stretch[place]:
                accepted, place = accepted + 1, place + 1
            place += 1
            count += 1
    return count


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=30), max_size=8), st.integers(1, 6))
def test_the_bound_is_what_a_perfect_drafter_reaches(stretches: list[list[bool]], proposals: int) -> None:
    covered = np.array([mark for stretch in stretches for mark in stretch], np.bool_)
    starts = np.cumsum([0, *(len(stretch) for stretch in stretches)])[:-1]
    assert verifications(covered, starts, proposals) == played(stretches, proposals)


@given(st.data())
def test_answers_are_the_masked_ids_in_stretches(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    total = sum(lengths)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)))
    ids = np.arange(total)
    sample_starts = np.cumsum([0, *lengths])[:-1]
    found = answers_of(ids, mask, sample_starts)
    stretches = np.split(found.tokens, found.starts[1:])
    expected: list[list[int]] = []
    for start, length in zip(sample_starts, lengths, strict=True):
        open_stretch = False
        for place in range(start, start + length):
            if mask[place] and open_stretch:
                expected[-1].append(place)
            elif mask[place]:
                expected.append([place])
            open_stretch = bool(mask[place])
    assert [stretch.tolist() for stretch in stretches if len(stretch)] == expected


def test_the_curve_is_that_of_the_most_frequent_tokens() -> None:
    points = {point.draft_vocab_size: point.coverage for point in best_coverage(COUNTS, [1, 2, 6, 99, 0])}
    assert points == pytest.approx({1: 0.8, 2: 0.89, 6: 1.0})
    for size in (1, 2, 5):
        assert best_coverage(COUNTS, [size])[0].coverage == pytest.approx(
            Mapping.from_counts(COUNTS, size).coverage(COUNTS)
        )
    assert 32_000 in curve_sizes(163_840, 32_000)
    assert max(curve_sizes(163_840, 32_000)) == 163_840
    curve = best_coverage(COUNTS, [1, 4, 5, 6])
    assert [point.draft_vocab_size for point in until_full(curve, 6)] == [1, 4, 5, 6]
    assert [point.draft_vocab_size for point in until_full(curve, 1)] == [1, 4, 5]


def test_what_is_missing_comes_by_frequency_and_what_never_occurs_is_not_missed() -> None:
    assert missing_ids(COUNTS, Mapping.from_target_ids(np.array([1, 2]), 6)).tolist() == [5, 0, 4, 3]
