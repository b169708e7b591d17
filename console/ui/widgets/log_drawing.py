"""How a line of a log looks: its own colours, its level, what was found in it, what is selected; and the marks before it."""

import re
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from rich.text import Span, Text
from textual.strip import Strip
from textual.widget import Widget

from console.state.log_lines import Level, LogLine
from console.ui.widgets.log_rows import Row

GUTTER = 2
"""Cells before each row: the letter of its line's level and a blank."""

_LETTERS: dict[Level, str] = {"debug": "D", "warning": "W", "error": "E"}
"""No state by colour alone; what is neither better nor worse than usual has no letter."""

_READABLE = Style(conceal=False, blink=False, blink2=False)

COMPONENTS = {"log-pane--match", "log-pane--current", "log-pane--marked", *(f"log-pane--{level}" for level in _LETTERS)}
"""The component classes of a widget that draws lines."""


class Marked(NamedTuple):
    """What is marked in a line: what `find` finds, all of it when it `is_current` or `is_marked`, and the columns that are `selected`
    (-1: to its end).
    """

    find: re.Pattern[str] | None
    is_current: bool
    is_marked: bool
    selected: tuple[int, int] | None


def draw_line(pane: Widget, line: LogLine, marked: Marked) -> Text:
    """A whole line in the styles of `pane`."""
    text = colored(line.text) if "\x1b" in line.text else Text(line.text, no_wrap=True)
    if line.level in _LETTERS:
        text.stylize_before(pane.get_component_rich_style(f"log-pane--{line.level}", partial=True))
    if marked.find is not None:
        for found in marked.find.finditer(text.plain):
            text.stylize(pane.get_component_rich_style("log-pane--match"), *found.span())
    if marked.is_current:
        text.stylize(pane.get_component_rich_style("log-pane--current", partial=True))
    if marked.is_marked:
        text.stylize(pane.get_component_rich_style("log-pane--marked", partial=True))
    if marked.selected is not None:
        start, end = marked.selected
        style = pane.screen.get_component_rich_style("screen--selection")
        text.stylize(style, start, len(text) if end < 0 else end)
    return text


def draw_gutter(pane: Widget, row: Row, line: LogLine, style: Style, *, is_marked: bool) -> Strip:
    """The marks before a row: the letter of its line's level before the first one alone, a bar while a person marks the line."""
    letter = " " if row.start or line.level is None else _LETTERS.get(line.level, " ")
    if letter != " ":
        style += pane.get_component_rich_style(f"log-pane--{line.level}", partial=True)
    return Strip([Segment(f"{letter}{'▌' if is_marked else ' '}", style)], GUTTER)


def colored(line: str) -> Text:
    """A line whose colours have become styles; what they would hide stays readable."""
    text = Text.from_ansi(line, no_wrap=True)
    text.spans = [
        Span(span.start, span.end, span.style + _READABLE) for span in text.spans if isinstance(span.style, Style)
    ]
    return text
