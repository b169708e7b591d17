"""A plot as lines of text, pure: a heading, curves in braille between labels of the scale, and the axis with its events."""

import math
from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from console.state.marks import MARK_KINDS, MarkKind
from console.state.plots import Plot, Span, Track, reading_at
from console.ui.widgets.palette import Palette

_ACROSS, _DOWN = 2, 4
"""Dots of a cell."""
_BLANK = 0x2800
"""Braille without a dot."""
_DASH = 2
"""A dotted curve is drawn on one of so many cells."""
_MOST_LABEL = 6

MARK_GLYPHS: dict[MarkKind, str] = {"xid": "✗", "lost": "∅", "throttled": "!", "paused": "‖"}
MARK_WORDS: dict[MarkKind, str] = {"xid": "XID", "lost": "device lost", "throttled": "throttled", "paused": "paused"}
MARK_COLORS: dict[MarkKind, str] = {"xid": "error", "lost": "error", "throttled": "warning", "paused": "warning"}


class PlacedMark(NamedTuple):
    """An event on the axis of a plot; `words` say what it was."""

    kind: MarkKind
    start: float
    end: float
    words: str


class Drawing(NamedTuple):
    """Curves in braille: a character a cell, and the role of its colour; what the lowest and the highest row stand for."""

    cells: list[str]
    colors: list[list[str | None]]
    low: float
    high: float


def draw(plot: Plot, tracks: list[Track], span: Span, width: int, height: int, *, is_log: bool) -> Drawing | None:
    """The curves on `width` x `height` cells; None where there is no value in `span`, on a logarithmic scale none above zero."""
    seen = [_seen(each, span, is_log=is_log) for each in tracks]
    values = [value for points in seen for _, value in points if value is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    if plot.low is not None and not is_log:
        low = min(low, plot.low)
    if high == low:
        low, high = low - abs(low) / 10 - 0.01, high + abs(high) / 10 + 0.01
    codes = [[_BLANK] * width for _ in range(height)]
    colors: list[list[str | None]] = [[None] * width for _ in range(height)]
    alike: dict[tuple[str, bool], list[list[tuple[float, float | None]]]] = {}
    for each, points in zip(tracks, seen, strict=True):
        alike.setdefault((each.curve.color, each.curve.dotted), []).append(points)
    for (color, dotted), group in alike.items():
        for row, line in enumerate(_dots(group, span, low, high, width, height)):
            for column, char in enumerate(line):
                if ord(char) != _BLANK and not (dotted and column % _DASH):
                    codes[row][column] |= ord(char)
                    colors[row][column] = color
    rows = ["".join(" " if code == _BLANK else chr(code) for code in row) for row in codes]
    return Drawing(rows, colors, _linear(low, is_log=is_log), _linear(high, is_log=is_log))


def _linear(value: float, *, is_log: bool) -> float:
    return 10**value if is_log else value


def _seen(track: Track, span: Span, *, is_log: bool) -> list[tuple[float, float | None]]:
    """The readings within `span` and the edges of the lines that cross its ends; on a logarithmic scale their logarithms."""
    places = track.places
    values = [_logarithm(value) for value in track.values] if is_log else track.values
    first, stop = bisect_left(places, span.start), bisect_right(places, span.end)
    found = list(zip(places[first:stop], values[first:stop], strict=True))
    for edge, after in ((span.start, first), (span.end, stop)):
        if 0 < after < len(places) and places[after] != places[after - 1]:
            before, behind = values[after - 1], values[after]
            if before is not None and behind is not None:
                share = (edge - places[after - 1]) / (places[after] - places[after - 1])
                found.append((edge, before + share * (behind - before)))
    return sorted(found, key=lambda point: point[0])


def _logarithm(value: float | None) -> float | None:
    return math.log10(value) if value is not None and value > 0.0 else None


def _dots(
    lines: list[list[tuple[float, float | None]]], span: Span, low: float, high: float, width: int, height: int
) -> list[str]:
    """A line of braille characters for each row, top line first: in each column of dots all that was read there."""
    from plotille import Canvas  # noqa: PLC0415 - takes a tenth of a second that only a plot needs

    down = _DOWN * height - 1
    canvas = Canvas(width, height, 0, 0, _ACROSS * width, _DOWN * height)
    for points in lines:
        before: tuple[int, int] | None = None
        for (column, is_gap), group in groupby(
            points, key=lambda point: (dot(point[0], span, width), point[1] is None)
        ):
            if is_gap:
                before = None
                continue
            rows = [round((value - low) / (high - low) * down) for _, value in group if value is not None]
            if before is not None:
                canvas.line(*before, column, rows[0])
            canvas.line(column, min(rows), column, max(rows))
            before = (column, rows[-1])
    return canvas.plot("\n").split("\n")


def dot(place: float, span: Span, width: int) -> int:
    """The column of dots of a place when `span` is drawn on `width` cells."""
    return round((place - span.start) / (span.length or 1.0) * (_ACROSS * width - 1))


class Frame(NamedTuple):
    """What the plots of a page have in common; `cursor` is a place on the axis."""

    span: Span
    marks: list[PlacedMark]
    cursor: float | None
    palette: Palette

    def column(self, place: float, width: int) -> int:
        """The cell of a place when the part that is seen has `width` of them."""
        return min(width - 1, max(0, dot(place, self.span, width) // _ACROSS))


def panel(
    plot: Plot, tracks: list[Track], drawing: Drawing | None, frame: Frame, width: int, height: int
) -> list[Text]:
    """`height` + 2 lines, `width` cells each."""
    palette = frame.palette
    labels = ("", "") if drawing is None else (plot.tick(drawing.high), plot.tick(drawing.low))
    inner = width - _MOST_LABEL - 1
    lines = [_heading(plot, tracks, frame, width, inner)]
    cursor = None if frame.cursor is None else frame.column(frame.cursor, inner)
    for row in range(height):
        label = labels[0] if row == 0 else labels[1] if row == height - 1 else ""
        line = Text(f"{label[:_MOST_LABEL]:>{_MOST_LABEL}}│", style=palette.quiet)
        if drawing is not None:
            line.append_text(_curves(drawing, row, cursor, palette))
        elif row == height // 2:
            line.append("nothing in this part"[:inner], style=palette.quiet)
        line.pad_right(width - line.cell_len)
        lines.append(line)
    lines.append(_axis(frame, cursor, inner))
    return lines


def inner_width(width: int) -> int:
    """The cells of a panel's curves when the panel is `width` cells wide."""
    return width - _MOST_LABEL - 1


def axis_start() -> int:
    """The cell of a panel at which its curves begin."""
    return _MOST_LABEL + 1


def _heading(plot: Plot, tracks: list[Track], frame: Frame, width: int, inner: int) -> Text:
    """The title with the values at the cursor, or the newest: named where there are several curves, as many as have room."""
    palette = frame.palette
    line = Text(f"{plot.title} "[:width], style=palette.foreground)
    several = len(plot.curves) > 1
    for each in tracks:
        words = value_words(each, frame, inner)
        name = each.curve.short if several else ""
        sign = "┄" if each.curve.dotted else ""
        piece = " ".join(filter(None, [f"{sign}{name}", words]))
        if line.cell_len + len(piece) + 2 > width:
            line.append("…"[: width - line.cell_len], style=palette.quiet)
            break
        line.append(f" {piece}", style=f"bold {palette[each.curve.color]}")
    line.pad_right(width - line.cell_len)
    return line


def value_words(track: Track, frame: Frame, inner: int) -> str:
    """The value at the cursor, or the newest one that is seen; a dash where nothing was read."""
    if frame.cursor is None:
        stop = bisect_right(track.places, frame.span.end)
        value = track.values[stop - 1] if stop else None
    else:
        value = reading_at(track, frame.cursor, frame.span.length / max(1, inner))
    return "–" if value is None else track.curve.words(value)


def _curves(drawing: Drawing, row: int, cursor: int | None, palette: Palette) -> Text:
    line = Text()
    cells = enumerate(zip(drawing.cells[row], drawing.colors[row], strict=True))
    for (is_cursor, color), group in groupby(cells, key=lambda cell: (cell[0] == cursor, cell[1][1])):
        chars = "".join(char for _, (char, _) in group)
        if color is None:
            line.append("│" if is_cursor else chars, style=palette.foreground if is_cursor else palette.quiet)
        else:
            line.append(chars, style=f"reverse {palette[color]}" if is_cursor else palette[color])
    return line


def _axis(frame: Frame, cursor: int | None, inner: int) -> Text:
    """The line under the curves: each event as far as it went, the gravest above the others, and where the cursor is."""
    signs: list[tuple[str, str]] = [("─", frame.palette.quiet)] * inner
    if cursor is not None:
        signs[cursor] = ("┴", frame.palette.foreground)
    for mark in sorted(frame.marks, key=lambda mark: -MARK_KINDS.index(mark.kind)):
        sign = (MARK_GLYPHS[mark.kind], f"bold {frame.palette[MARK_COLORS[mark.kind]]}")
        for column in range(frame.column(mark.start, inner), frame.column(mark.end, inner) + 1):
            signs[column] = sign
    line = Text(f"{'':>{_MOST_LABEL}}└", style=frame.palette.quiet)
    for style, group in groupby(signs, key=lambda sign: sign[1]):
        line.append("".join(char for char, _ in group), style=style)
    return line
