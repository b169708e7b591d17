"""Rows of a log: nothing is lost or doubled by breaking, wide characters are not cut, and what is looked for is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.state.log_lines import LogLine
from console.state.sanitize import without_colors
from console.ui.widgets.log_rows import LogRows, compile_find

_LINES = st.lists(st.text("ab é漢字\U0001f600", min_size=1, max_size=30), max_size=20)


def laid_out(lines: list[str], **how) -> LogRows:
    rows = LogRows(1000)
    rows.add(map(LogLine, lines))
    rows.arrange(**{"break_at": None, "find": None, "kind": "mark", **how})
    return rows


def pieces(rows: LogRows) -> list[str]:
    return [without_colors(rows.line(row.line).text)[row.start : row.end] for row in rows.rows]


@given(_LINES, st.integers(2, 9))
def test_broken_lines_are_whole_when_put_together_and_no_row_is_too_wide(lines, width) -> None:
    rows = laid_out(lines, break_at=width)
    assert "".join(pieces(rows)) == "".join(lines)
    assert all(cell_len(piece) <= width for piece in pieces(rows))
    assert [row.line for row in rows.rows if row.start == 0] == list(range(len(lines)))


@given(_LINES, _LINES, st.integers(1, 12))
def test_adding_line_by_line_is_the_same_as_laying_out_at_once_and_tells_the_rows_that_went(
    first, second, capacity
) -> None:
    rows = LogRows(capacity)
    rows.arrange(break_at=4, find=compile_find("a"), kind="mark")
    rows.add(map(LogLine, first))
    before = len(rows.rows)
    gone = rows.add(map(LogLine, second))
    grown = list(rows.rows), list(rows.matches)
    rows.arrange(break_at=4, find=compile_find("a"), kind="mark")
    assert (rows.rows, rows.matches) == grown
    assert rows.count == min(capacity, len(first) + len(second))
    assert len(rows.rows) >= before - gone or gone >= before


def test_colours_count_neither_as_columns_nor_as_text() -> None:
    rows = laid_out(["\x1b[31mred\x1b[0m and plain"], break_at=5, find=compile_find("and"))
    assert pieces(rows) == ["red a", "nd pl", "ain"]
    assert rows.matches == [0]


def test_lines_without_a_match_have_no_rows_when_only_matches_are_wanted() -> None:
    rows = laid_out(["loss 1", "note", "loss 2"], find=compile_find("loss"), kind="only")
    assert pieces(rows) == ["loss 1", "loss 2"] == [line.text for line in rows.shown_lines()]
    assert [rows.ordinal(row) for row in rows.rows] == [0, 1]
    assert rows.row_of(1) == 1


def test_lines_with_a_match_have_no_rows_when_they_are_left_out() -> None:
    rows = laid_out(["loss 1", "note", "loss 2", "end"], find=compile_find("loss"), kind="without")
    assert pieces(rows) == ["note", "end"]
    assert rows.matches == [0, 2]
    assert [rows.ordinal(row) for row in rows.rows] == [0, 1]


@given(_LINES, _LINES, st.integers(0, 30), st.sampled_from(["mark", "only", "without"]))
def test_what_is_taken_back_was_never_there(lines, more, count, kind) -> None:
    taken, kept = LogRows(1000), lines[: max(0, len(lines) - count)]
    taken.arrange(break_at=4, find=compile_find("a"), kind=kind)
    taken.add(map(LogLine, lines))
    taken.take_back(count)
    taken.add(map(LogLine, more))
    there = laid_out([*kept, *more], break_at=4, find=compile_find("a"), kind=kind)
    assert (taken.rows, taken.matches, taken.shown_lines()) == (there.rows, there.matches, there.shown_lines())


def test_only_matches_of_nothing_looked_for_are_all_lines() -> None:
    assert pieces(laid_out(["a", "b"], kind="only")) == ["a", "b"]


@pytest.mark.parametrize(
    ("typed", "line", "found"),
    [
        ("loss", "LOSS 1", True),
        ("LOSS", "loss 1", False),
        (r"step \d+/400", "step 12/400", True),
        ("tok/s (", "12 tok/s (mean)", True),
        ("[", "list[0]", True),
        ("loss", "los", False),
    ],
)
def test_what_is_typed_is_a_regular_expression_or_else_itself(typed, line, found) -> None:
    assert bool(compile_find(typed).search(line)) is found


def test_nothing_typed_looks_for_nothing() -> None:
    assert compile_find("") is None
