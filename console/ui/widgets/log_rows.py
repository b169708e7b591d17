"""The rows that the lines of a log take: whole or broken at a width, all lines, those alone that match or those that do not."""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from console.config.screen_memory import FilterKind
from console.state.log_lines import LogLine
from console.state.sanitize import without_colors


class Row(NamedTuple):
    """The characters from `start` to `end` of a line; `line` counts from the first line that was ever added."""

    line: int
    start: int
    end: int


def compile_find(text: str) -> re.Pattern[str] | None:
    """What is looked for: a regular expression, or the text itself where it is none; capitals count only if it has some."""
    if not text:
        return None
    flags = 0 if text != text.lower() else re.IGNORECASE
    try:
        return re.compile(text, flags)
    except re.error:
        return re.compile(re.escape(text), flags)


class LogRows:
    """The newest `capacity` lines, laid out."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = 0
        """The number of the oldest line that is held."""
        self.rows: list[Row] = []
        self.matches: list[int] = []
        """The numbers of the lines in which what is looked for was found."""
        self.width = 0
        """Cells of the widest line."""
        self._lines: deque[LogLine] = deque()
        self._shown: list[int] = []
        self._break_at: int | None = None
        self._find: re.Pattern[str] | None = None
        self._kind: FilterKind = "mark"

    @property
    def count(self) -> int:
        """Lines that are held."""
        return len(self._lines)

    @property
    def find(self) -> re.Pattern[str] | None:
        """What is looked for."""
        return self._find

    def line(self, number: int) -> LogLine:
        """A line with its colours."""
        return self._lines[number - self.first]

    def shown_lines(self) -> list[LogLine]:
        """The lines that have rows."""
        return [self.line(number) for number in self._shown]

    def ordinal(self, row: Row) -> int:
        """The index of the row's line in `shown_lines`."""
        return bisect_left(self._shown, row.line)

    def shown_from(self, line: int, by: int) -> int:
        """The line that is shown `by` lines after (before, if negative) that one, as far as there are any."""
        place = bisect_left(self._shown, line) + by
        return self._shown[min(max(0, place), len(self._shown) - 1)] if self._shown else line

    def shown_between(self, first: int, last: int) -> list[LogLine]:
        """The lines that are shown from one to another, both included."""
        place, end = bisect_left(self._shown, first), bisect_right(self._shown, last)
        return [self.line(number) for number in self._shown[place:end]]

    def add(self, lines: Iterable[LogLine]) -> int:
        """Add lines at the end; returns how many rows the oldest ones took that went for it."""
        for line in lines:
            number = self.first + len(self._lines)
            self._lines.append(line)
            self._lay_out(number, line)
        before = len(self.rows)
        surplus = max(0, len(self._lines) - self.capacity)
        for _ in range(surplus):
            self._lines.popleft()
        self.first += surplus
        if surplus:
            del self.rows[: self.row_of(self.first)]
            for numbers in (self.matches, self._shown):
                del numbers[: bisect_left(numbers, self.first)]
        return before - len(self.rows)

    def take_back(self, count: int) -> None:
        """Forget the newest `count` lines, or all that there are."""
        for _ in range(min(count, len(self._lines))):
            self._lines.pop()
        end = self.first + len(self._lines)
        del self.rows[self.row_of(end) :]
        for numbers in (self.matches, self._shown):
            del numbers[bisect_left(numbers, end) :]

    def clear(self) -> None:
        """Forget all lines; how lines are laid out stays."""
        self._lines.clear()
        self.first = 0
        self.arrange(break_at=self._break_at, find=self._find, kind=self._kind)

    def arrange(self, *, break_at: int | None, find: re.Pattern[str] | None, kind: FilterKind) -> None:
        """Lay everything out anew: broken at so many cells or not at all, and what becomes of the lines that match."""
        self._break_at, self._find, self._kind = break_at, find, kind
        self.rows, self.matches, self._shown, self.width = [], [], [], 0
        for number, line in enumerate(self._lines, start=self.first):
            self._lay_out(number, line)

    def row_of(self, line: int) -> int:
        """The index of the first row of that line, or of the next one that has rows."""
        return bisect_left(self.rows, Row(line, 0, 0))

    def _lay_out(self, number: int, line: LogLine) -> None:
        text = without_colors(line.text)
        if self._find is not None:
            matched = self._find.search(text) is not None
            if matched:
                self.matches.append(number)
            if (self._kind == "only" and not matched) or (self._kind == "without" and matched):
                return
        self._shown.append(number)
        cells = cell_len(text)
        self.width = max(self.width, cells)
        if self._break_at is None or cells <= self._break_at:
            self.rows.append(Row(number, 0, len(text)))
            return
        start = 0
        for piece in filter(None, chop_cells(text, self._break_at)):
            self.rows.append(Row(number, start, start + len(piece)))
            start += len(piece)
