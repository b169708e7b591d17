"""Zoom and cursor: never beyond what was read, and nothing jumps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.state.plot_view import Between, Everything, Newest, PlotView, move_cursor, span_of, zoom
from console.state.plots import Curve, Plot, Point, Span, reading_at, step_times, track
from console.state.units import format_count

WHOLE = Span(1000.0, 4000.0)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("zoom"), st.sampled_from([0.5, 2.0]), st.none() | st.floats(900.0, 4100.0)),
        st.tuples(st.just("move"), st.integers(-40, 40), st.integers(10, 200)),
    ),
    max_size=30,
)


def looked(changes) -> PlotView:
    view = PlotView()
    for kind, by, more in changes:
        view = zoom(view, WHOLE, by, more) if kind == "zoom" else move_cursor(view, WHOLE, by, more)
    return view


@given(steps)
def test_what_is_seen_and_the_cursor_are_always_within_what_was_read(changes) -> None:
    view = looked(changes)
    span = span_of(view.seen, WHOLE)
    assert WHOLE.start <= span.start < span.end <= WHOLE.end
    assert view.cursor is None or WHOLE.start <= view.cursor <= WHOLE.end


@given(steps, st.integers(-5, 5).filter(bool))
def test_a_cursor_that_was_moved_is_seen(changes, by) -> None:
    view = move_cursor(looked(changes), WHOLE, by, 100)
    span = span_of(view.seen, WHOLE)
    assert span.start - 1e-6 <= view.cursor <= span.end + 1e-6


@given(steps, st.floats(0.1, 0.9), st.sampled_from([0.5, 2.0]))
def test_what_is_under_the_pointer_stays_there_but_at_the_ends(changes, share, factor) -> None:
    view = looked(changes)
    before = span_of(view.seen, WHOLE)
    around = before.start + share * before.length
    after = span_of(zoom(view, WHOLE, factor, around).seen, WHOLE)
    assert after.start - 1e-6 <= around <= after.end + 1e-6
    if WHOLE.start < after.start and after.end < WHOLE.end:
        assert (around - after.start) / after.length == pytest.approx(share, abs=1e-6)


def test_the_newest_part_moves_with_new_readings_and_an_older_one_stays() -> None:
    later = Span(1000.0, 4100.0)
    newest = zoom(PlotView(), WHOLE, 0.5)
    assert newest.seen == Newest(1500.0)
    assert span_of(newest.seen, later) == Span(2600.0, 4100.0)
    older = zoom(PlotView(), WHOLE, 0.5, 2000.0)
    assert older.seen == Between(1500.0, 3000.0)
    assert span_of(older.seen, later) == Span(1500.0, 3000.0)
    assert zoom(zoom(older, WHOLE, 2.0), WHOLE, 2.0).seen == Everything()
    assert span_of(PlotView().seen, later) == later


def curve(points: list[Point]) -> Curve:
    return Curve("loss", "loss", format_count, points, "accent")


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.none() | st.floats(-9, 9)), min_size=1, unique_by=lambda each: each[0]),
    st.floats(-100, 1100),
    st.floats(0, 50),
)
def test_the_value_at_a_place_is_that_of_the_nearest_reading(readings, place, reach) -> None:
    readings.sort()
    found = reading_at(track(curve([Point(at, None, value) for at, value in readings]), "time"), place, reach)
    if place < readings[0][0] - reach or place > readings[-1][0] + reach:
        assert found is None
    else:
        least = min(abs(at - place) for at, _ in readings)
        assert found in [value for at, value in readings if math.isclose(abs(at - place), least, abs_tol=1e-9)]


def test_time_and_steps_are_those_of_the_training_and_not_of_what_it_is_compared_with() -> None:
    own = curve([Point(100.0 + 2 * step, step, 1.0) for step in range(10, 60, 10)])
    other = curve([Point(float(step), step, 1.0) for step in range(900)])._replace(dotted=True)
    rate = curve([Point(float(at), None, 1.0) for at in range(300)])
    times = step_times([Plot("decode", [rate], format_count), Plot("training loss", [other, own], format_count)])
    assert [times.step_at(at) for at in (119.0, 120.0, 121.0, 140.0, 200.0, 201.0)] == [None, 10, 20, 20, 50, None]
    assert [times.moment_of(step) for step in (9, 10, 11, 50, 51)] == [None, 120.0, 140.0, 200.0, None]
    assert track(rate, "step").places == []
    assert step_times([Plot("decode", [rate], format_count)]).step_at(1.0) is None
