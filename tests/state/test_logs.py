"""A log is whole lines in order, whatever pieces, repeats and gaps the bytes arrive in."""

from hypothesis import given
from hypothesis import strategies as st

from console.state.logs import CAPACITY_LINES, LogBuffer

lines = st.lists(st.text(alphabet="abc é", min_size=1).filter(str.strip), max_size=30)


@given(lines, st.data())
def test_pieces_and_repeats_give_every_line_once(texts, data) -> None:
    log = "".join(f"{text}\n" for text in texts).encode()
    buffer = LogBuffer(0)
    while buffer.cursor < len(log):
        start = data.draw(st.integers(0, buffer.cursor))
        end = data.draw(st.integers(buffer.cursor + 1, len(log)))
        buffer.append(start, log[start:end])
    assert list(buffer.lines) == texts
    assert buffer.written == len(texts)


def test_a_gap_is_shown_and_reading_goes_on_after_it() -> None:
    buffer = LogBuffer(0)
    buffer.append(0, b"one\ntw")
    buffer.append(10, b"three\n")
    assert buffer.lines[0] == "one"
    assert "4 bytes of the log are missing" in buffer.lines[1]
    assert buffer.lines[2] == "three"
    assert buffer.cursor == 16


def test_a_cut_log_goes_on_at_its_new_start() -> None:
    buffer = LogBuffer(0)
    buffer.append(0, b"old\n")
    buffer.truncated(100)
    buffer.append(100, b"new\n")
    assert [buffer.lines[0], buffer.lines[-1]] == ["old", "new"]
    assert buffer.cursor == 104


def test_a_log_that_begins_in_the_middle_says_so_and_begins_with_a_whole_line() -> None:
    buffer = LogBuffer(2, left_out=2)
    buffer.append(2, b"e")
    buffer.append(3, b"\ntwo\n")
    assert "2 B of the log before this are not shown" in buffer.lines[0]
    assert list(buffer.lines)[1:] == ["two"]


def test_bytes_before_the_cursor_are_passed_over() -> None:
    buffer = LogBuffer(4)
    buffer.append(0, b"one\ntwo\n")
    assert list(buffer.lines) == ["two"]


def test_memory_is_bounded_by_lines_and_by_line_length() -> None:
    buffer = LogBuffer(0)
    buffer.append(0, b"x" * 100_000)
    buffer.append(100_000, b"\n" + b"y\n" * (CAPACITY_LINES + 10))
    assert len(buffer.lines) == CAPACITY_LINES
    assert max(map(len, buffer.lines)) <= 8192


def test_bytes_that_are_no_text_and_orders_to_the_terminal_become_text() -> None:
    buffer = LogBuffer(0)
    buffer.append(0, b"caf\xc3\xa9 \xff\x1b]0;owned\x07 10%\r20%\n")
    assert list(buffer.lines) == ["café � 10%", "20%"]
