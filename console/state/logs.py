"""The part of a job's log that the console holds: whole lines by absolute byte offset, nothing twice, nothing skipped."""

from collections import deque
from itertools import islice
from typing import NamedTuple

from console.state.log_lines import LogLine, log_line
from console.state.sanitize import sanitize_log, without_colors
from console.state.units import format_bytes

CAPACITY_LINES = 5000
_MAX_LINE_BYTES = 8192


class News(NamedTuple):
    """What a view of a log has not shown yet: the newest `back` of its lines go, `lines` come, and `written` were added in all."""

    back: int
    lines: list[LogLine]
    written: int


class LogBuffer:
    """The newest lines of one log; `cursor` is the offset of the next byte that is wanted."""

    def __init__(self, cursor: int, *, left_out: int = 0) -> None:
        self.cursor = cursor
        self.lines: deque[str] = deque(maxlen=CAPACITY_LINES)
        self.written = 0
        """Lines ever added: a view that has shown `n` of them wants the rest."""
        self._partial = b""
        self._in_mid_line = left_out > 0
        if left_out:
            self._add(f"··· {format_bytes(left_out)} of the log before this are not shown; `roost logs` has them ···")

    def append(self, offset: int, data: bytes) -> None:
        """Add bytes at their absolute offset; what is there already is passed over, a gap is shown as one."""
        if offset > self.cursor:
            self._add(f"··· {offset - self.cursor} bytes of the log are missing here ···")
            self._partial = b""
        fresh = data[max(0, self.cursor - offset) :]
        if not fresh:
            return
        self.cursor = max(offset, self.cursor) + len(fresh)
        if self._in_mid_line:
            _, newline, fresh = fresh.partition(b"\n")
            self._in_mid_line = not newline
        *whole, self._partial = (self._partial + fresh).split(b"\n")
        for line in whole:
            self._add_bytes(line)
        if len(self._partial) > _MAX_LINE_BYTES:
            self._add_bytes(self._partial)
            self._partial = b""

    def truncated(self, start: int) -> None:
        """The log's head was cut: reading goes on at `start`."""
        self._partial = b""
        self.cursor = start
        self._add("··· the log was cut here ···")

    def since(self, written: int) -> News:
        """What came after the first `written` lines, as it is shown; nothing that was shown ever goes."""
        count = min(self.written - written, len(self.lines))
        newest = list(islice(self.lines, len(self.lines) - count, None))
        return News(0, [log_line(line) for line in newest], self.written)

    def _add_bytes(self, line: bytes) -> None:
        for text in sanitize_log(line[:_MAX_LINE_BYTES].decode(errors="replace")).split("\n"):
            if without_colors(text).strip():
                self._add(text.expandtabs(4))

    def _add(self, text: str) -> None:
        self.lines.append(text)
        self.written += 1
