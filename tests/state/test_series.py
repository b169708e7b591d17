"""Histories keep the newest, shrink without inventing, and are drawn in exactly the cells they were given."""

from hypothesis import given
from hypothesis import strategies as st

from console.state.series import Series, TimeSeries, plot, shrink, sparkline

readings = st.lists(st.none() | st.floats(-1e9, 1e9), max_size=200)


@given(readings, st.integers(1, 50))
def test_a_series_keeps_the_newest_and_forgets_the_oldest(values, capacity) -> None:
    series = Series(capacity)
    for value in values:
        series.append(value)
    assert series.tail(capacity) == values[-capacity:]
    assert series.last == (values[-1] if values else None)


@given(readings, st.integers(0, 120))
def test_shrinking_fits_the_width_and_stays_between_the_extremes(values, width) -> None:
    shrunk = shrink(values, width)
    assert len(shrunk) == min(width, len(values))
    known = [value for value in values if value is not None]
    for value in shrunk:
        if value is not None:
            assert min(known) - 1e-3 <= value <= max(known) + 1e-3


@given(readings)
def test_a_sparkline_has_a_cell_a_value_and_shows_the_unknown_as_nothing(values) -> None:
    drawn = sparkline(values)
    assert len(drawn) == len(values)
    for cell, value in zip(drawn, values, strict=True):
        assert (cell == " ") == (value is None)


@given(readings, st.integers(1, 6))
def test_a_plot_is_a_rectangle_whose_columns_grow_with_the_values(values, height) -> None:
    lines = plot(values, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {len(values)}
    heights = [sum(" ▁▂▃▄▅▆▇█".index(line[column]) for line in lines) for column in range(len(values))]
    known = sorted((value, tall) for value, tall in zip(values, heights, strict=True) if value is not None)
    assert [tall for _, tall in known] == sorted(tall for _, tall in known)
    assert all(tall > 0 for _, tall in known)
    if known and known[0][0] < known[-1][0]:
        assert known[-1][1] == 8 * height


def test_a_sparkline_spans_the_whole_range() -> None:
    assert sparkline([0.0, 0.5, 1.0], low=0.0, high=1.0) == "▁▅█"


@given(st.lists(st.tuples(st.integers(0, 2000), st.none() | st.floats(0, 1)), max_size=150), st.randoms())
def test_what_comes_twice_or_out_of_order_changes_nothing(readings, chance) -> None:
    first = list(dict(reversed(readings)).items())
    ordered, mixed = TimeSeries(), TimeSeries()
    for at, value in sorted(first):
        ordered.add(at, value)
    chance.shuffle(first)
    for at, value in [*first, *first]:
        mixed.add(at, value)
    assert mixed.columns() == ordered.columns()
    assert mixed.last == ordered.last
    told = [value for value in ordered.columns() if value is not None]
    known = [value for _, value in sorted(first) if value is not None]
    assert told == known[len(known) - len(told) :]


def test_missing_readings_are_columns_without_a_value() -> None:
    series = TimeSeries()
    for at in (*range(10), 15, 16, 17):
        series.add(float(at), 1.0)
    assert series.columns() == [1.0] * 10 + [None] * 5 + [1.0] * 3
    for at in range(10, 15):
        series.add(float(at), 0.5)
    assert series.columns() == [1.0] * 10 + [0.5] * 5 + [1.0] * 3


def test_a_reading_that_is_a_little_late_leaves_no_gap() -> None:
    series = TimeSeries()
    for at in (0.0, 1.0, 2.1, 4.2, 5.0, 6.0):
        series.add(at, 1.0)
    assert None not in series.columns()


def test_a_long_gap_takes_no_more_than_the_room_there_is() -> None:
    series = TimeSeries(10)
    series.add(0.0, 1.0)
    series.add(1.0, 1.0)
    series.add(1e9, 2.0)
    assert series.columns() == [None] * 9 + [2.0]
