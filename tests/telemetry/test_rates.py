"""Rates are differences: never negative, never invented."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.telemetry.rates import CounterRates, FillRate, difference_rate

counts = st.integers(0, 1 << 50)
seconds = st.floats(0.01, 1000)


@given(before=counts, more=counts, elapsed=seconds)
def test_a_counter_that_moved_on_has_the_rate_of_its_difference(before, more, elapsed):
    rate = difference_rate(before, before + more, elapsed)
    assert rate is not None
    assert rate * elapsed == pytest.approx(more)


@given(before=counts, less=st.integers(1, 1 << 50), elapsed=seconds)
def test_a_counter_that_restarted_has_no_rate(before, less, elapsed):
    assert difference_rate(before + less, before, elapsed) is None


@pytest.mark.parametrize(("before", "after", "elapsed"), [(None, 1, 1.0), (1, None, 1.0), (1, 2, 0.0), (1, 2, -1.0)])
def test_nothing_is_known_from_half_a_difference(before, after, elapsed):
    assert difference_rate(before, after, elapsed) is None


def test_rates_follow_their_counters_by_name():
    rates = CounterRates()
    assert rates.advance(10.0, {"rx": 100}) == {"rx": None}
    assert rates.advance(12.0, {"rx": 300, "tx": 7}) == {"rx": 100.0, "tx": None}
    assert rates.advance(13.0, {"rx": 250, "tx": 8}) == {"rx": None, "tx": 1.0}
    assert rates.advance(14.0, {"rx": None, "tx": 8}) == {"rx": None, "tx": 0.0}


def fill(levels: list[float], *, every_s: float = 3.0) -> FillRate:
    rate = FillRate(window_s=120, spacing_s=3, minimum_span_s=12)
    for step, level in enumerate(levels):
        rate.add(step * every_s, level)
    return rate


@given(start=st.integers(0, 1 << 40), slope=st.integers(-(1 << 30), 1 << 30), points=st.integers(5, 60))
def test_a_steady_fill_has_its_slope(start, slope, points):
    assert fill([start + slope * 3 * step for step in range(points)]).rate() == pytest.approx(slope)


def test_a_short_look_says_nothing():
    assert fill([0, 1000, 2000, 3000]).rate() is None
    assert fill([0, 1000, 2000, 3000, 4000]).rate() == pytest.approx(1000 / 3)


@given(steady=st.integers(1, 1 << 20), burst=st.integers(-(1 << 40), 1 << 40), at=st.integers(0, 20))
def test_one_reading_that_is_out_of_line_does_not_sway_it(steady, burst, at):
    levels = [steady * 3.0 * step for step in range(21)]
    levels[at] += burst
    assert fill(levels).rate() == pytest.approx(steady)


def test_the_window_forgets_what_is_long_past():
    filling = [1000.0 * step for step in range(50)]
    resting = [filling[-1]] * 60
    assert fill(filling + resting).rate() == 0.0


def test_readings_in_quick_succession_count_once():
    rate = FillRate(spacing_s=3, minimum_span_s=12)
    for step in range(200):
        rate.add(step * 0.01, step)
    assert len(rate._points) == 1
