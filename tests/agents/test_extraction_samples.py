"""The order in which samples are sent: like lengths together, the file's order at large."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.extraction.samples import NEIGHBOURS, in_order
from remote.artifacts.store_plan import Planned


def planned(lengths: list[int]) -> list[Planned]:
    return [
        Planned(f"s{number}", np.zeros(length, np.int64), np.ones(length, np.bool_))
        for number, length in enumerate(lengths)
    ]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=3 * NEIGHBOURS))
def test_neighbours_go_by_length_and_nobody_leaves_his_neighbours(lengths: list[int]) -> None:
    ordered = in_order(planned(lengths))
    for first in range(0, len(lengths), NEIGHBOURS):
        bucket = ordered[first : first + NEIGHBOURS]
        sent = [len(item.input_ids) for item in bucket]
        assert sent == sorted(sent)
        assert {item.sample_id for item in bucket} == {
            f"s{number}" for number in range(first, min(first + NEIGHBOURS, len(lengths)))
        }
