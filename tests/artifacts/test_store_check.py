"""Two captures of the same tokens, held against each other."""

import math

import numpy as np

from remote.artifacts.hidden_states import Sample
from remote.artifacts.store_check import deviation


def sample(hidden: np.ndarray, final: np.ndarray) -> Sample:
    return Sample("s", np.arange(len(final)), np.ones(len(final), bool), hidden, final)


def test_a_row_that_is_no_number_is_no_small_deviation() -> None:
    hidden, final = np.ones((4, 2, 8), np.float32), np.ones((4, 8), np.float32)
    broken = hidden.copy()
    broken[2, 1] = np.nan
    for one, other in ((hidden, broken), (broken, hidden)):
        assert math.isnan(deviation(sample(one, final), sample(other, final)).largest)


def test_the_worst_row_and_the_median_of_the_worst_layer() -> None:
    hidden, final = np.ones((5, 2, 8), np.float32), np.ones((5, 8), np.float32)
    other = hidden.copy()
    other[:3, 1] *= 1.5
    other[0, 0] *= 3
    apart = deviation(sample(other, final), sample(hidden, final))
    assert apart.largest == 2.0
    assert apart.typical == 0.5
