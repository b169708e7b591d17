"""How a person looks at plots, pure: which part of the axis, where the cursor is, which scale, one plot or all of them."""

import msgspec

from console.state.plots import Axis, Span

_CLOSEST = 4.0
"""Seconds or steps that are seen at least."""
_ROUNDING = 1e-6
"""A part that ends this share of its length before the newest reading ends there."""


class Everything(msgspec.Struct, frozen=True):
    """From the first reading to the last."""


class Newest(msgspec.Struct, frozen=True):
    """The newest `length` seconds or steps; new readings move it."""

    length: float


class Between(msgspec.Struct, frozen=True):
    """A part that stays where it is."""

    start: float
    end: float


Seen = Everything | Newest | Between


class PlotView(msgspec.Struct, frozen=True):
    """`cursor` is a place on the axis; `alone` the plot that has the whole room, by its number."""

    axis: Axis = "time"
    seen: Seen = Everything()
    cursor: float | None = None
    is_log: bool = False
    alone: int | None = None


def span_of(seen: Seen, whole: Span) -> Span:
    """The part of the axis that is seen when there are readings in `whole`."""
    match seen:
        case Everything():
            return whole
        case Newest(length=length):
            return Span(max(whole.start, whole.end - length), whole.end)
        case Between(start=start, end=end):
            return Span(start, end)


def zoom(view: PlotView, whole: Span, factor: float, around: float | None = None) -> PlotView:
    """See `factor` times as much, with the place `around` (by default the cursor, else the end) where it is."""
    span = span_of(view.seen, whole)
    center = around if around is not None else view.cursor if view.cursor is not None else span.end
    center = min(max(center, span.start), span.end)
    length = max(span.length * factor, min(_CLOSEST, whole.length))
    share = (center - span.start) / span.length if span.length else 1.0
    return _see(view, whole, center - share * length, length)


def move_cursor(view: PlotView, whole: Span, by: int, columns: int) -> PlotView:
    """Move the cursor by so many of the `columns` in which the part that is seen is drawn; at an edge the part moves, too."""
    span = span_of(view.seen, whole)
    if view.cursor is None:
        return msgspec.structs.replace(view, cursor=span.end)
    cursor = min(max(view.cursor + by * span.length / max(1, columns), whole.start), whole.end)
    view = msgspec.structs.replace(view, cursor=cursor)
    if cursor < span.start:
        return _see(view, whole, cursor, span.length)
    return _see(view, whole, cursor - span.length, span.length) if cursor > span.end else view


def _see(view: PlotView, whole: Span, start: float, length: float) -> PlotView:
    """The part from `start` on, as far as there are readings; at the end of them it goes on with new ones."""
    if length >= whole.length:
        return msgspec.structs.replace(view, seen=Everything())
    start = max(whole.start, start)
    if start + length >= whole.end - _ROUNDING * length:
        return msgspec.structs.replace(view, seen=Newest(length))
    return msgspec.structs.replace(view, seen=Between(start, start + length))
