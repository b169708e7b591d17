"""Plots on one axis: zoom, a cursor that reads values, logarithmic scales, and the events of the hardware where they happened."""

from typing import NamedTuple

from msgspec.structs import replace
from rich.text import Text
from textual.events import Click, Leave, MouseEvent, MouseMove, MouseScrollDown, MouseScrollUp, Resize

from console.state.marks import Mark
from console.state.plot_view import Everything, PlotView, move_cursor, span_of, zoom
from console.state.plots import Axis, Plot, Span, StepTimes, Track, along, extent, step_times
from console.ui.keymap import PLOT_ACTIONS, bindings
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette
from console.ui.widgets.plot_lines import Drawing, Frame, PlacedMark, axis_start, draw, inner_width, panel
from console.ui.widgets.plot_words import axis_words, mark_words, reading_words

_ZOOM = 2.0
_GAP = 2
_NARROWEST, _WIDEST = 26, 110
"""Columns of a plot beside another at least, and beyond which one is not alone on its line when there are more."""
_FEWEST_ROWS, _GOOD_ROWS, _MOST_ROWS = 2, 6, 20
"""Rows of curves: at least, enough, at most."""
_ROWS_BESIDE = 2
"""The heading and the axis of each plot."""
_LOW = 18
"""Rows below which what the cursor reads has one line."""


class Grid(NamedTuple):
    """`columns` plots of `width` cells beside each other with `height` rows of curves each; `shown` have room."""

    columns: int
    width: int
    height: int
    shown: int


class Plots(Lines, can_focus=True):
    """Draws what `show` was given last; how a person looks at it is kept from one reading to the next."""

    BINDINGS = [*bindings(PLOT_ACTIONS)]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, markup=False)
        self._view = PlotView()
        self._plots: list[Plot] = []
        self._shown: list[tuple[Plot, list[Track]]] = []
        self._times = StepTimes([], [])
        self._marks: list[Mark] = []
        self._palette: Palette | None = None
        self._drawings: dict[str, tuple[object, Drawing | None]] = {}
        self._hovers = False

    def show(self, plots: list[Plot], marks: list[Mark], palette: Palette) -> None:
        """Draw these plots, and the events on the axis that they share."""
        self._plots, self._marks, self._palette = plots, marks, palette
        self._times = step_times(plots)
        if self._view.axis == "step" and not self._times.steps:
            self._view = PlotView(is_log=self._view.is_log)
        self._draw()

    def look_along(self, axis: Axis) -> None:
        """See all of another axis."""
        self._look(PlotView(axis=axis, is_log=self._view.is_log))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """None greys out a key that would do nothing."""
        idle = {
            "toggle_axis": not self._times.steps,
            "show_all": self._view.cursor is None and isinstance(self._view.seen, Everything),
            "next_alone": len(self._shown) < 2,
        }
        is_own = any(each.action == action for each in PLOT_ACTIONS)
        return None if is_own and (not self._shown or idle.get(action, False)) else True

    def action_cursor_left(self) -> None:
        """Read further to the left."""
        self._look(move_cursor(self._view, self._whole, -1, self._inner))

    def action_cursor_right(self) -> None:
        """Read further to the right."""
        self._look(move_cursor(self._view, self._whole, 1, self._inner))

    def action_zoom_in(self) -> None:
        """See less of the axis."""
        self._look(zoom(self._view, self._whole, 1 / _ZOOM))

    def action_zoom_out(self) -> None:
        """See more of the axis."""
        self._look(zoom(self._view, self._whole, _ZOOM))

    def action_show_all(self) -> None:
        """See the whole axis."""
        self._look(replace(self._view, seen=Everything(), cursor=None))

    def action_toggle_scale(self) -> None:
        """Logarithmic or linear."""
        self._look(replace(self._view, is_log=not self._view.is_log))

    def action_toggle_axis(self) -> None:
        """The time or the steps; the cursor stays at what it reads."""
        view, times = self._view, self._times
        if view.axis == "time":
            cursor = None if view.cursor is None else times.step_at(view.cursor)
            self._look(replace(view, axis="step", seen=Everything(), cursor=cursor))
        else:
            cursor = None if view.cursor is None else times.moment_of(view.cursor)
            self._look(replace(view, axis="time", seen=Everything(), cursor=cursor))

    def action_next_alone(self) -> None:
        """One plot, the next one, all."""
        following = 0 if self._view.alone is None else self._view.alone + 1
        self._look(replace(self._view, alone=following if following < len(self._shown) else None))

    def on_mouse_move(self, event: MouseMove) -> None:
        """Read what is under the pointer."""
        place = self._place(event)
        if place is not None:
            self._hovers = True
            self._look(replace(self._view, cursor=place))

    def on_leave(self, event: Leave) -> None:  # noqa: ARG002 - Textual's interface
        """A pointer that goes takes its cursor with it."""
        if self._hovers:
            self._hovers = False
            self._look(replace(self._view, cursor=None))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Closer to what is under the pointer."""
        event.stop()
        self._look(zoom(self._view, self._whole, 1 / _ZOOM, self._place(event)))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Farther from what is under the pointer."""
        event.stop()
        self._look(zoom(self._view, self._whole, _ZOOM, self._place(event)))

    def on_click(self, event: Click) -> None:
        """The plot under the pointer has the whole room, or all have it again."""
        spot = self._spot(event)
        if spot is not None:
            alone = None if self._view.alone is not None else spot[0]
            self._look(replace(self._view, alone=alone))

    def on_resize(self, event: Resize) -> None:  # noqa: ARG002 - the size is the widget's own
        """Another room."""
        self._draw()

    def _look(self, view: PlotView) -> None:
        """Look so from now on."""
        self._view = view
        self._draw()
        self.refresh_bindings()

    @property
    def _whole(self) -> Span:
        return extent(self._shown) or Span(0.0, 0.0)

    @property
    def _drawn(self) -> list[tuple[Plot, list[Track]]]:
        """The plots that have room, or the one that has all of it."""
        alone = self._view.alone
        return self._shown[: self._grid.shown] if alone is None else [self._shown[alone % len(self._shown)]]

    @property
    def _grid(self) -> Grid:
        width, height = self.content_size
        count = len(self._shown) if self._view.alone is None else 1
        return arrange(count, width, height - 2 - self._reading_lines)

    @property
    def _reading_lines(self) -> int:
        return 1 if self.content_size.height < _LOW else 2

    @property
    def _inner(self) -> int:
        return inner_width(self._grid.width)

    def _spot(self, event: MouseEvent) -> tuple[int, int] | None:
        """The plot under the pointer by its number, and the cell of its curves, which may lie beside them."""
        offset, grid = event.get_content_offset(self), self._grid
        if offset is None:
            return None
        column = offset.x // (grid.width + _GAP)
        number = offset.y // (grid.height + _ROWS_BESIDE) * grid.columns + column
        return (number, offset.x - column * (grid.width + _GAP) - axis_start()) if number < len(self._drawn) else None

    def _place(self, event: MouseEvent) -> float | None:
        """What is under the pointer on the axis."""
        spot = self._spot(event) if self._shown else None
        if spot is None or not 0 <= spot[1] < self._inner:
            return None
        span = span_of(self._view.seen, self._whole)
        return span.start + (spot[1] + 0.5) / self._inner * span.length

    def _draw(self) -> None:
        palette, view = self._palette, self._view
        if palette is None or not self.content_size.width:
            return
        self._shown = along(self._plots, view.axis)
        if not self._shown:
            hint = "curves of loss, accuracy, acceptance, tok/s and the GPUs appear here while a run works"
            self.put(Text(hint, style=palette.quiet))
            return
        grid, drawn = self._grid, self._drawn
        frame = Frame(span_of(view.seen, self._whole), self._placed(), view.cursor, palette)
        lines: list[Text] = []
        for at in range(0, len(drawn), grid.columns):
            panels = [self._panel(plot, tracks, frame, grid) for plot, tracks in drawn[at : at + grid.columns]]
            lines += [Text(" " * _GAP).join(row) for row in zip(*panels, strict=True)]
        hidden = len(self._shown) - len(drawn) if view.alone is None else 0
        whole = isinstance(view.seen, Everything)
        lines.append(axis_words(frame, view.axis, whole=whole, is_log=view.is_log, hidden=hidden))
        lines.append(mark_words(frame, self._inner))
        read = reading_words(self._shown, self._times, view.axis, frame, self._inner)
        lines += _wrapped(read, self.content_size.width, self._reading_lines)
        self.put(Text("\n").join(lines))

    def _panel(self, plot: Plot, tracks: list[Track], frame: Frame, grid: Grid) -> list[Text]:
        """A cursor moves over curves that stay as they are."""
        ends = [(each.places[0], each.places[-1], len(each.places)) for each in tracks if each.places]
        asked = (ends, frame.span, grid, self._view.is_log)
        known = self._drawings.get(plot.title)
        if known is None or known[0] != asked:
            drawing = draw(plot, tracks, frame.span, inner_width(grid.width), grid.height, is_log=self._view.is_log)
            known = self._drawings[plot.title] = (asked, drawing)
        return panel(plot, tracks, known[1], frame, grid.width, grid.height)

    def _placed(self) -> list[PlacedMark]:
        """The events by their places on the axis."""
        if self._view.axis == "time":
            return [PlacedMark(mark.kind, mark.at, mark.until, mark.words) for mark in self._marks]
        found = [(mark, self._times.step_at(mark.at), self._times.step_at(mark.until)) for mark in self._marks]
        return [PlacedMark(mark.kind, a, a if b is None else b, mark.words) for mark, a, b in found if a is not None]


def arrange(count: int, width: int, rows: int) -> Grid:
    """Where `count` plots go on `width` x `rows` cells: those that have no room are left out, the last ones first."""
    fewest = min(count, -(-width // _WIDEST))
    most = max(fewest, min(count, (width + _GAP) // (_NARROWEST + _GAP)))
    found: list[Grid] = []
    for columns in range(fewest, most + 1):
        lines = min(-(-count // columns), max(1, rows // (_FEWEST_ROWS + _ROWS_BESIDE)))
        height = max(1, min(_MOST_ROWS, rows // lines - _ROWS_BESIDE))
        each = (width - _GAP * (columns - 1)) // columns
        found.append(Grid(columns, each, height, min(count, columns * lines)))
    return max(
        found, key=lambda grid: (grid.shown, min(grid.height, _GOOD_ROWS), -(-grid.shown % grid.columns), -grid.columns)
    )


def _wrapped(text: Text, width: int, lines: int) -> list[Text]:
    """At most so many lines of at most `width` cells; what has no room is cut."""
    found: list[Text] = []
    rest = text
    while rest.cell_len > width and len(found) < lines - 1:
        at = max(rest.plain.rfind(" · ", 0, width), 1)
        found.append(rest[:at])
        rest = rest[at + 3 :]
    rest.truncate(width, overflow="ellipsis")
    return [*found, rest]
