"""A job's log. It follows the end until a person scrolls up, and says so; it never jumps while it is being read."""

from textual.widgets import Log

from console.state.logs import CAPACITY_LINES, LogBuffer


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
