"""The rows that the lines of a log take: whole or broken at a width, all lines or those alone that match."""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

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
        self.first = 0
        """The number of the oldest line that is held."""
        self.rows: list[Row] = []
        self.matches: list[int] = []
        """The numbers of the lines in which what is looked for was found."""
        self.width = 0
        """Cells of the widest line."""
        self._capacity = capacity
        self._lines: deque[str] = deque()
        self._break_at: int | None = None
        self._find: re.Pattern[str] | None = None
        self._only_matches = False

    @property
    def count(self) -> int:
        """Lines that are held."""
        return len(self._lines)

    @property
    def find(self) -> re.Pattern[str] | None:
        """What is looked for."""
        return self._find

    def line(self, number: int) -> str:
        """A line with its colours."""
        return self._lines[number - self.first]

    def shown_lines(self) -> list[str]:
        """The lines that have rows, with their colours."""
        return [self.line(number) for number in self.matches] if self._only_matches else list(self._lines)

    def ordinal(self, row: Row) -> int:
        """The index of the row's line in `shown_lines`."""
        return bisect_left(self.matches, row.line) if self._only_matches else row.line - self.first

    def add(self, lines: Iterable[str]) -> int:
        """Add lines at the end; returns how many rows the oldest ones took that went for it."""
        for line in lines:
            number = self.first + len(self._lines)
            self._lines.append(line)
            self._lay_out(number, without_colors(line))
        before = len(self.rows)
        surplus = max(0, len(self._lines) - self._capacity)
        for _ in range(surplus):
            self._lines.popleft()
        self.first += surplus
        if surplus:
            del self.rows[: self.row_of(self.first)]
            del self.matches[: bisect_left(self.matches, self.first)]
        return before - len(self.rows)

    def clear(self) -> None:
        """Forget all lines; how lines are laid out stays."""
        self._lines.clear()
        self.first = 0
        self.arrange(break_at=self._break_at, find=self._find, only_matches=self._only_matches)

    def arrange(self, *, break_at: int | None, find: re.Pattern[str] | None, only_matches: bool) -> None:
        """Lay everything out anew: broken at so many cells or not at all, all lines or the matching ones."""
        self._break_at, self._find, self._only_matches = break_at, find, only_matches and find is not None
        self.rows, self.matches, self.width = [], [], 0
        for number, line in enumerate(self._lines, start=self.first):
            self._lay_out(number, without_colors(line))

    def row_of(self, line: int) -> int:
        """The index of the first row of that line, or of the next one that has rows."""
        return bisect_left(self.rows, Row(line, 0, 0))

    def _lay_out(self, number: int, text: str) -> None:
        if self._find is not None:
            if self._find.search(text):
                self.matches.append(number)
            elif self._only_matches:
                return
        cells = cell_len(text)
        self.width = max(self.width, cells)
        if self._break_at is None or cells <= self._break_at:
            self.rows.append(Row(number, 0, len(text)))
            return
        start = 0
        for piece in filter(None, chop_cells(text, self._break_at)):
            self.rows.append(Row(number, start, start + len(piece)))
            start += len(piece)
