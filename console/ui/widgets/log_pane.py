"""A job's log. It follows the end until a person scrolls up, and says so; it never jumps while it is being read.

Its lines hold no sequences but colours (SGR), which become styles here; the terminal is sent Textual's own, and none under NO_COLOR.
"""

from rich.style import Style
from rich.text import Span, Text
from textual.markup import escape
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Log

from console.state.logs import CAPACITY_LINES, LogBuffer
from console.state.sanitize import without_colors

_READABLE = Style(conceal=False, blink=False, blink2=False)


class LogPane(Log):
    """Shows one `LogBuffer` at a time; its heading says which job, and when it does not follow."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, max_lines=CAPACITY_LINES, auto_scroll=False, highlight=False)
        self._buffer: LogBuffer | None = None
        self._written = 0
        self._following = True

    @property
    def following(self) -> bool:
        """Whether new lines move the view to the end."""
        return self._following

    def show(self, buffer: LogBuffer | None, title: str) -> None:
        """Add what is new of `buffer`; another buffer starts afresh at its end."""
        if buffer is not self._buffer:
            self.clear()
            self._buffer, self._written, self._following = buffer, 0, True
        if buffer is not None and buffer.written > self._written:
            self.write_lines(buffer.newest(buffer.written - self._written), scroll_end=False)
            self._written = buffer.written
        if self._following:
            self.scroll_end(animate=False, immediate=True)
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
        self.scroll_end(animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up stops following; reaching the end starts it again.

        A view that was moved back because there is less to show (another log, a larger window) is still at its end.
        """
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self._following = True
        elif new_value < old_value:
            self._following = False

    @classmethod
    def _process_line(cls, line: str) -> str:
        return super()._process_line(without_colors(line))

    def _render_line_strip(self, y: int, rich_style: Style) -> Strip:
        line = self._lines[y]
        if "\x1b" not in line or self.text_selection is not None:
            return super()._render_line_strip(y, rich_style)
        text = colored(line)
        text.stylize_before(rich_style)
        return Strip(text.render(self.app.console), text.cell_len)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text under the selection, without colours."""
        return selection.extract("\n".join(map(without_colors, self._lines))), "\n"


def colored(line: str) -> Text:
    """A line whose colours have become styles; what they would hide stays readable."""
    text = Text.from_ansi(line, no_wrap=True)
    text.spans = [
        Span(span.start, span.end, span.style + _READABLE) for span in text.spans if isinstance(span.style, Style)
    ]
    return text
