"""What stands under plots, pure: which part of the axis they show, what the cursor reads, and what befell the hardware."""

from rich.text import Text

from console.state.marks import MARK_KINDS
from console.state.moments import format_clock
from console.state.plots import Axis, Plot, StepTimes, Track
from console.state.units import format_duration
from console.ui.widgets.plot_lines import MARK_COLORS, MARK_GLYPHS, MARK_WORDS, Frame, PlacedMark, value_words

_HINT = "← → or the pointer read values, ↑ ↓ or the wheel zoom"


def axis_words(frame: Frame, axis: Axis, *, whole: bool, is_log: bool, hidden: int) -> Text:
    """`01:02:10 to 01:12:10 UTC, 10:00 · a part, 0 shows all`."""
    span, quiet = frame.span, frame.palette.quiet
    if axis == "time":
        words = f"{format_clock(span.start)} to {format_clock(span.end)} UTC, {format_duration(span.length)}"
    else:
        words = f"steps {span.start:,.0f} to {span.end:,.0f}"
    parts = [words]
    if not whole:
        parts.append("a part, 0 shows all")
    if is_log:
        parts.append("logarithmic: nothing of zero and below")
    if hidden:
        parts.append(f"{hidden} more, z shows each alone")
    return Text(" · ".join(parts), style=quiet)


def mark_words(frame: Frame, inner: int) -> Text:
    """The events under the cursor in full, or the signs of those that are seen and the newest of them."""
    palette = frame.palette
    seen = [mark for mark in frame.marks if mark.start <= frame.span.end and mark.end >= frame.span.start]
    if not seen:
        return Text("no XID, lost device, throttling or pause in this part", style=palette.quiet)
    text = Text()
    if frame.cursor is not None and (here := [mark for mark in seen if _is_at(mark, frame.cursor, frame, inner)]):
        for mark in sorted(here, key=lambda mark: MARK_KINDS.index(mark.kind)):
            text.append("  " if text else "")
            text.append(f"{MARK_GLYPHS[mark.kind]} {mark.words}", style=palette[MARK_COLORS[mark.kind]])
        return text
    for kind in MARK_KINDS:
        count = sum(mark.kind == kind for mark in seen)
        if count:
            text.append("  " if text else "")
            text.append(MARK_GLYPHS[kind], style=f"bold {palette[MARK_COLORS[kind]]}")
            text.append(f" {MARK_WORDS[kind]}" + (f" x{count}" if count > 1 else ""), style=palette.foreground)
    newest = max(seen, key=lambda mark: mark.start)
    return text.append(f"  the newest: {newest.words}", style=palette.quiet)


def _is_at(mark: PlacedMark, cursor: float, frame: Frame, inner: int) -> bool:
    return frame.column(mark.start, inner) <= frame.column(cursor, inner) <= frame.column(mark.end, inner)


def reading_words(
    shown: list[tuple[Plot, list[Track]]], times: StepTimes, axis: Axis, frame: Frame, inner: int
) -> Text:
    """When it was, and every value that was read then."""
    palette, cursor = frame.palette, frame.cursor
    if cursor is None:
        return Text(_HINT, style=palette.quiet)
    at = cursor if axis == "time" else times.moment_of(cursor)
    step = times.step_at(cursor) if axis == "time" else round(cursor)
    when = [] if at is None else [f"{format_clock(at)} UTC"]
    when += [] if step is None else [f"step {step:,}"]
    text = Text()
    text.append(", ".join(when), style=f"bold {palette.foreground}")
    for _, tracks in shown:
        for each in tracks:
            words = value_words(each, frame, inner)
            text.append(" · ", style=palette.quiet)
            text.append(f"{each.curve.name} ", style=palette.quiet)
            text.append("not known" if words == "–" else words, style=palette[each.curve.color])
    return text
