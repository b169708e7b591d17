"""Histories keep the newest, shrink without inventing, and are drawn in exactly the cells they were given."""

from hypothesis import given
from hypothesis import strategies as st

from console.state.series import Series, plot, shrink, sparkline

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
