"""A log with all its keys: the log, a line that says where it is, and in its place the one to type on."""

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input, Static

from console.config.screen_memory import FilterKind
from console.state.logs import CAPACITY_LINES, LogBuffer
from console.ui.keymap import LOG_ACTIONS, bindings
from console.ui.messages import CopyWanted, LogViewWanted
from console.ui.widgets.log_pane import LogPane

_NEXT_KIND: dict[FilterKind, FilterKind] = {"mark": "only", "only": "without", "without": "mark"}


_OF_LOGS = {action.action.partition("(")[0] for action in LOG_ACTIONS}
_WHILE_MARKING = ("mark", "copy", "copy_to_file")


class WholeLog(LogPane):
    """The log, which has the keys."""

    BINDINGS = [
        *bindings(LOG_ACTIONS),
        Binding("N", "step(-1)", show=False),
        Binding("escape", "end_mark", "Mark nothing"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """None greys a key out, False hides it while it would do nothing; marking has the keys to itself."""
        if action == "end_mark":
            return self.is_marking
        if self.is_marking and action in _OF_LOGS:
            return action in _WHILE_MARKING
        if action == "sideways" and self.wraps:
            return None
        if action == "step":
            return bool(self.finds) and self.kind != "without"
        return bool(self.finds) if action == "next_kind" else True

    def action_toggle_wrap(self) -> None:
        """Long lines go on below, or beyond the edge."""
        self.post_message(LogViewWanted(wraps=not self.wraps, kind=self.kind))

    def action_step(self, by: int) -> None:
        """To another match."""
        self.step(by)

    def action_next_kind(self) -> None:
        """All lines, those that match, or those that do not."""
        self.post_message(LogViewWanted(wraps=self.wraps, kind=_NEXT_KIND[self.kind]))

    def action_mark(self) -> None:
        """Begin to mark, or mark nothing."""
        if self.is_marking:
            self.end_mark()
        else:
            self.begin_mark()

    def action_end_mark(self) -> None:
        """Mark nothing."""
        self.end_mark()

    def action_copy(self) -> None:
        """Copy what the keys have marked, else what the mouse has selected."""
        self._copy(to_file=False)

    def action_copy_to_file(self) -> None:
        """The same into a file."""
        self._copy(to_file=True)

    def _copy(self, *, to_file: bool) -> None:
        lines = self.marked_lines
        if not lines:
            selected = self.screen.get_selected_text()
            lines = [] if selected is None else selected.splitlines()
        self.post_message(CopyWanted(lines, self.query_ancestor(LogReader).copy_name, to_file=to_file))
        self.end_mark()
        self.screen.clear_selection()

    def action_scroll_up(self) -> None:
        """A line back, for the mark while there is one."""
        self._scroll_or_mark(-1, super().action_scroll_up)

    def action_scroll_down(self) -> None:
        """A line on."""
        self._scroll_or_mark(1, super().action_scroll_down)

    def action_page_up(self) -> None:
        """A page back."""
        self._scroll_or_mark(-self.page_lines, super().action_page_up)

    def action_page_down(self) -> None:
        """A page on."""
        self._scroll_or_mark(self.page_lines, super().action_page_down)

    def action_scroll_home(self) -> None:
        """To the first line."""
        self._scroll_or_mark(-CAPACITY_LINES, super().action_scroll_home)

    def action_scroll_end(self) -> None:
        """To the last line."""
        self._scroll_or_mark(CAPACITY_LINES, super().action_scroll_end)

    def _scroll_or_mark(self, by: int, scroll: Callable[[], None]) -> None:
        if self.is_marking:
            self.move_mark(by)
        else:
            scroll()

    def action_find(self) -> None:
        """Ask for what to look for."""
        self.query_ancestor(LogReader).ask()


class FindLine(Input):
    """Where to type what to look for; it takes the place of the line that says where the log is."""

    BINDINGS = [Binding("escape", "close", "Cancel"), Binding("enter", "submit", "Find; nothing typed ends it")]

    def __init__(self) -> None:
        super().__init__(placeholder="a text or a regular expression; !… leaves out what matches", compact=True)
        self.add_class("find-line")
        self.display = False

    def action_close(self) -> None:
        """Leave everything as it is."""
        self.query_ancestor(LogReader).close()


class LogReader(Vertical):
    """Shows a log and answers to the keys in `LOG_ACTIONS`."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.copy_name = "log"
        """What the name of a file begins with into which something is copied."""
        self._shown: tuple[bool, bool, bool, str, FilterKind] | None = None

    def compose(self) -> ComposeResult:
        """The log, and where it is."""
        yield WholeLog(id="whole-log")
        yield FindLine()
        yield Static(classes="log-place", markup=False)

    def on_mount(self) -> None:
        """The keys are the log's."""
        self.log_pane.focus()

    @property
    def log_pane(self) -> WholeLog:
        """The log itself."""
        return self.query_one(WholeLog)

    def take_view(self, *, wraps: bool, kind: FilterKind) -> None:
        """Lay lines out as a person wants it on every log."""
        for log in self.query(WholeLog):
            if log.wraps != wraps:
                log.wrap(wraps=wraps)
            if log.kind != kind:
                log.filter(kind)

    def show(self, buffer: LogBuffer | None, title: str) -> None:
        """Add what is new."""
        if self.query(".log-place"):  # it may be asked before it is there
            self.log_pane.show(buffer, title)
            self._show_place()

    def ask(self) -> None:
        """Let a person type what to look for, beginning with what is looked for already."""
        line, log = self.query_one(FindLine), self.log_pane
        line.value = written_find(log.finds, log.kind)
        line.display = True
        line.focus()

    def close(self) -> None:
        """The keys are the log's again."""
        self.query_one(FindLine).display = False
        self.log_pane.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Find what matches; nothing typed finds nothing."""
        event.stop()
        self.close()
        log = self.log_pane
        log.find(*read_find(event.value, log.kind))
        self.post_message(LogViewWanted(wraps=log.wraps, kind=log.kind))

    def on_log_moved(self) -> None:
        """Say where the log is now."""
        if self.query(".log-place"):
            self._show_place()

    def _show_place(self) -> None:
        line, log = self.query_one(".log-place", Static), self.log_pane
        line.update(place_words(log))
        line.set_class(not log.following, "-still")
        shown = (log.following, log.is_marking, log.wraps, log.finds, log.kind)
        if shown != self._shown:
            self._shown = shown
            self.refresh_bindings()


def read_find(typed: str, kind: FilterKind) -> tuple[str, FilterKind]:
    r"""What to look for, and what becomes of it: `!text` leaves out, `text` does as `kind` did before; `\!text` looks for the sign."""
    if typed.startswith("!"):
        return typed[1:], "without"
    return typed.removeprefix("\\") if typed.startswith("\\!") else typed, "mark" if kind == "without" else kind


def written_find(finds: str, kind: FilterKind) -> str:
    r"""What `read_find` would read so."""
    return f"!{finds}" if finds and kind == "without" else f"\\{finds}" if finds.startswith("!") else finds


def place_words(log: LogPane) -> str:
    """Which lines, which match, whether they follow, how they are cut and what is looked for: what can be missed comes last."""
    place = log.place
    if log.is_marking:
        count = len(log.marked_lines)
        return f"{count:,} {'line' if count == 1 else 'lines'} marked · the keys that scroll mark more · y copies, Y writes a file, Escape ends it"
    words = [f"lines {place.first:,} to {place.last:,} of {place.count:,}" if place.count else "no lines yet"]
    if log.finds:
        words.append(_found_words(log))
    words.append("following" if log.following else f"{place.unseen:,} new below")
    if log.wraps:
        words.append("wrapped")
    elif place.column:
        words.append(f"from column {place.column + 1}")
    if log.finds:
        words.append(f"/{written_find(log.finds, log.kind)}")
    return " · ".join(words)


def _found_words(log: LogPane) -> str:
    place = log.place
    match log.kind:
        case "without":
            return f"{place.matches:,} lines with it left out"
        case "only" if place.matches:
            return f"match {place.match or '-'} of {place.matches:,}, other lines left out"
        case _:
            return f"match {place.match or '-'} of {place.matches:,}" if place.matches else "no match"
