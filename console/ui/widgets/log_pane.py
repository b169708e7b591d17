"""A job's log. It follows the end until a person scrolls up, and says so; it never jumps while it is being read.

Its lines hold no sequences but colours (SGR), which become styles here; the terminal is sent Textual's own, and none under NO_COLOR.
"""

from bisect import bisect_left, bisect_right
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.cache import LRUCache
from textual.events import Resize
from textual.geometry import Size
from textual.markup import escape
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from console.state.logs import CAPACITY_LINES, LogBuffer
from console.state.sanitize import without_colors
from console.ui.messages import LogMoved
from console.ui.widgets.log_drawing import COMPONENTS, GUTTER, Marked, draw_gutter, draw_line
from console.ui.widgets.log_rows import FilterKind, LogRows, Row, compile_find

_CACHED_ROWS = 1024


class Place(NamedTuple):
    """Where a view of a log is. Lines and matches count from 1, columns from 0; `unseen` lines came since it stopped following."""

    first: int
    last: int
    count: int
    column: int
    unseen: int
    match: int | None
    matches: int


class LogPane(ScrollView, can_focus=True):
    """Shows one `LogBuffer` at a time; its heading says which job, and when it does not follow."""

    ALLOW_SELECT = True
    HELP = (
        "A job's log, as it grows. It is at its end and follows it until you scroll up, and its heading says so; f follows "
        "again. The log of another job comes with its row in the table of jobs; l gives a log the whole screen."
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS
    BINDINGS = [
        Binding("left", "sideways(-1)", "Sideways", show=False),
        Binding("right", "sideways(1)", "Sideways", show=False),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._buffer: LogBuffer | None = None
        self._written = 0
        self._following = True
        self._seen = 0
        self._rows = LogRows(CAPACITY_LINES)
        self._wraps = False
        self._finds = ""
        self._kind: FilterKind = "mark"
        self._match: int | None = None
        self._mark: tuple[int, int] | None = None
        self._strips: LRUCache[Row, Strip] = LRUCache(_CACHED_ROWS)

    @property
    def following(self) -> bool:
        """Whether new lines move the view to the end."""
        return self._following

    @property
    def wraps(self) -> bool:
        """Whether long lines go on below instead of beyond the edge."""
        return self._wraps

    @property
    def finds(self) -> str:
        """What is looked for; empty for nothing."""
        return self._finds

    @property
    def kind(self) -> FilterKind:
        """What becomes of the lines that match."""
        return self._kind

    @property
    def place(self) -> Place:
        """Where the view is."""
        rows, top = self._rows.rows, self.scroll_offset.y
        shown = rows[top : top + self._view.height]
        matches = self._rows.matches
        return Place(
            first=shown[0].line - self._rows.first + 1 if shown else 0,
            last=shown[-1].line - self._rows.first + 1 if shown else 0,
            count=self._rows.count,
            column=self.scroll_offset.x,
            unseen=0 if self._following else self._written - self._seen,
            match=None if self._match is None else bisect_left(matches, self._match) + 1,
            matches=len(matches),
        )

    def show(self, buffer: LogBuffer | None, title: str) -> None:
        """Add what is new of `buffer`; another buffer starts afresh at its end."""
        if buffer is not self._buffer:
            self._buffer, self._written, self._following, self._match, self._mark = buffer, 0, True, None, None
            self._rows.clear()
            self._strips.clear()
            self._lay_out_again()
            self.scroll_to(x=0, animate=False, immediate=True)
        if buffer is not None and buffer.written > self._written:
            self._take_in(buffer)
        # A key that scrolls takes effect a moment later, and would be lost by going to the end before that.
        if self._following and not self.app.animator.is_being_animated(self, "scroll_y"):
            self._to_end()
        empty = buffer is None or not buffer.written
        if buffer is not None and empty:
            title = f"{title}: nothing written yet"
        elif not self._following:
            title = f"NOT FOLLOWING, f goes to the end · {title}"
        # A border on all sides pads its title by itself, one at the top does not.
        title = escape(title)
        self.border_title = title if self.styles.border_left[0] else f" {title} "

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        self._to_end()

    def wrap(self, *, wraps: bool) -> None:
        """Let long lines go on below, or beyond the edge."""
        self._wraps = wraps
        self._arrange()

    def filter(self, kind: FilterKind) -> None:
        """Do something else with what matches."""
        self._kind = kind
        self._arrange()

    @property
    def marked_lines(self) -> list[str]:
        """The lines that a person marks with the keys, without colours."""
        if self._mark is None:
            return []
        return [without_colors(line.text) for line in self._rows.shown_between(min(self._mark), max(self._mark))]

    @property
    def is_marking(self) -> bool:
        """Whether the keys that scroll mark lines."""
        return self._mark is not None

    def begin_mark(self) -> None:
        """Mark the match that was gone to where it is on the screen, else the last line there."""
        rows = self._rows.rows[self.scroll_offset.y :][: self._view.height]
        if not rows:
            return
        found = self._match is not None and rows[0].line <= self._match <= rows[-1].line
        start = self._match if found and self._match is not None else rows[-1].line
        self._set_mark((start, start))
        self._stop_following()

    def end_mark(self) -> None:
        """Mark nothing."""
        self._set_mark(None)

    def move_mark(self, by: int) -> None:
        """Mark up to the line `by` lines further on (or back), and bring that into sight."""
        if self._mark is None:
            return
        start, end = self._mark
        end = self._rows.shown_from(end, by)
        self._set_mark((max(start, self._rows.first), end))
        row, top, height = self._rows.row_of(end), self.scroll_offset.y, self._view.height
        if not top <= row < top + height:
            self.scroll_to(y=row if row < top else row - height + 1, animate=False, immediate=True)
        self._stop_following()

    @property
    def page_lines(self) -> int:
        """How many lines a page is when marks move by it."""
        return max(1, self._view.height - 1)

    def _set_mark(self, mark: tuple[int, int] | None) -> None:
        self._mark = mark
        self._strips.clear()
        self.refresh()
        self.post_message(LogMoved())

    def _is_marked(self, row: Row) -> bool:
        return self._mark is not None and min(self._mark) <= row.line <= max(self._mark)

    def find(self, text: str, kind: FilterKind) -> None:
        """Do as `kind` says with what matches `text`; the newest match that is on the screen or before it is gone to where it is shown.

        An empty `text` matches nothing.
        """
        bottom = self.place.last + self._rows.first
        self._match, self._finds, self._kind = None, text, kind
        self._arrange()
        matches = self._rows.matches
        if matches and kind != "without":
            self._go_to(matches[max(0, bisect_left(matches, bottom) - 1)])

    def step(self, by: int) -> None:
        """Go to the next match (1) or the one before (-1); after the last comes the first."""
        matches = self._rows.matches
        if not matches or self._kind == "without":
            return
        if self._match is None:
            top = self.place.first - 1 + self._rows.first
            nearest = bisect_left(matches, top) if by > 0 else bisect_right(matches, top) - 1
        else:
            nearest = bisect_left(matches, self._match) + by
        self._go_to(matches[nearest % len(matches)])

    def action_sideways(self, by: int) -> None:
        """Half a width to the left (-1) or right (1)."""
        self.scroll_to(x=self.scroll_x + by * max(1, self._columns // 2), animate=False)

    def action_scroll_home(self) -> None:
        """To the first line."""
        self.scroll_home(animate=False, x_axis=False)

    def action_scroll_end(self) -> None:
        """To the last line, which follows."""
        self.follow()

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        """Tell where the view is."""
        super().watch_scroll_x(old_value, new_value)
        self.post_message(LogMoved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up stops following; reaching the end starts it again.

        A view that was moved back because there is less to show (another log, a larger window) is still at its end.
        """
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self._following = True
        elif new_value < old_value:
            self._stop_following()
        self.post_message(LogMoved())

    def on_resize(self, event: Resize) -> None:  # noqa: ARG002 - the size is the widget's own
        """Lines are broken at another width."""
        if self._wraps:
            self._arrange()

    def notify_style_update(self) -> None:
        """Another theme: what was drawn is drawn anew."""
        super().notify_style_update()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        """A row of the view: the marks of its line, then the row."""
        column, top = self.scroll_offset
        columns, style = self._columns, self.rich_style
        if top + y >= len(self._rows.rows):
            return Strip.blank(columns + GUTTER, style)
        row = self._rows.rows[top + y]
        strip = self._strip(row, style).crop_extend(column, column + columns, style)
        # What is selected by the mouse is text alone, so only the row has offsets.
        placed = strip.apply_offsets(row.start + column, self._rows.ordinal(row))
        return Strip.join(
            [draw_gutter(self, row, self._rows.line(row.line), style, is_marked=self._is_marked(row)), placed]
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text under the selection, without colours; a line that goes on below is one line."""
        return selection.extract("\n".join(without_colors(line.text) for line in self._rows.shown_lines())), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - asked for when a row is drawn
        """Draw what is selected."""
        self._strips.clear()
        self.refresh()

    @property
    def _view(self) -> Size:
        """What there is for the rows and their marks, without padding and scroll bar."""
        return self.scrollable_content_region.size

    @property
    def _columns(self) -> int:
        """What there is for the text of a row."""
        return max(1, self._view.width - GUTTER)

    def _take_in(self, buffer: LogBuffer) -> None:
        news = buffer.since(self._written)
        gone = self._rows.add(news.lines)
        self._written = news.written
        self._lay_out_again()
        if gone and not self._following:
            self.scroll_to(y=self.scroll_offset.y - gone, animate=False, immediate=True)

    def _lay_out_again(self) -> None:
        self.virtual_size = Size(0 if self._wraps else self._rows.width + GUTTER, len(self._rows.rows))
        self.refresh()

    def _arrange(self) -> None:
        """Lay out anew with the same line at the top, or still at the end."""
        following, top = self._following, self.place.first - 1 + self._rows.first
        self._rows.arrange(
            break_at=self._columns if self._wraps else None,
            find=compile_find(self._finds),
            kind=self._kind,
        )
        self._strips.clear()
        self._lay_out_again()
        if following:
            self.follow()
        else:
            self.scroll_to(y=self._rows.row_of(top), animate=False, immediate=True)
            self._stop_following()
        self.post_message(LogMoved())

    def _go_to(self, line: int) -> None:
        self._match = line
        self._strips.clear()
        row, top, height = self._rows.row_of(line), self.scroll_offset.y, self._view.height
        if not top <= row < top + height:
            self.scroll_to(y=row - height // 2, animate=False, immediate=True)
        self._show_column_of(line)
        self._stop_following()
        self.refresh()
        self.post_message(LogMoved())

    def _show_column_of(self, line: int) -> None:
        """Sideways to the line's first match where that lies beyond an edge."""
        text = without_colors(self._rows.line(line).text)
        found = None if self._wraps or self._rows.find is None else self._rows.find.search(text)
        if found is None:
            return
        start, end = (cell_len(text[:position]) for position in found.span())
        left, width = self.scroll_offset.x, self._columns
        if start < left or end > left + width:
            self.scroll_to(x=max(0, start - width // 2), animate=False, immediate=True)

    def _stop_following(self) -> None:
        if self._following:
            self._following, self._seen = False, self._written

    def _to_end(self) -> None:
        self.scroll_end(animate=False, immediate=True, x_axis=False)

    def _strip(self, row: Row, style: Style) -> Strip:
        strip = self._strips.get(row)
        if strip is None:
            piece = self._text(row)[row.start : row.end]
            piece.stylize_before(style)
            strip = self._strips[row] = Strip(piece.render(self.app.console), cell_len(piece.plain))
        return strip

    def _text(self, row: Row) -> Text:
        """A row's whole line with its colours, matches and selection."""
        selected = None if self.text_selection is None else self.text_selection.get_span(self._rows.ordinal(row))
        marked = Marked(
            find=self._rows.find,
            is_current=row.line == self._match,
            is_marked=self._is_marked(row),
            selected=selected,
        )
        return draw_line(self, self._rows.line(row.line), marked)
