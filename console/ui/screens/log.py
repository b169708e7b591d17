"""A job's log on the whole screen."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input, Static

from console.state.host import HostState
from console.ui.keymap import LOG_ACTIONS, bindings
from console.ui.screens.own_keys import OwnKeysScreen
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.log_pane import LogPane


class WholeLog(LogPane):
    """The log with the keys that it has on the whole screen."""

    BINDINGS = [*bindings(LOG_ACTIONS), Binding("N", "step(-1)", show=False)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """None greys a key out, False hides it while it would do nothing."""
        if action == "sideways" and self.wraps:
            return None
        return bool(self.finds) if action in ("step", "toggle_only_matches") else True

    def action_toggle_wrap(self) -> None:
        """Long lines go on below, or beyond the edge."""
        self.toggle_wrap()

    def action_step(self, by: int) -> None:
        """To another match."""
        self.step(by)

    def action_toggle_only_matches(self) -> None:
        """All lines, or those that match."""
        self.toggle_only_matches()

    def action_find(self) -> None:
        """Ask for what to look for."""
        self.screen.query_one(FindLine).open(self.finds)


class FindLine(Input):
    """Where to type what to look for; it takes the place of the line that says where the log is."""

    BINDINGS = [Binding("escape", "close", "Cancel"), Binding("enter", "submit", "Find; nothing typed ends it")]

    def __init__(self) -> None:
        super().__init__(placeholder="a text or a regular expression", id="find-line", compact=True)
        self.display = False

    def open(self, text: str) -> None:
        """Begin with what is looked for already."""
        self.value = text
        self.display = True
        self.focus()

    def action_close(self) -> None:
        """Leave everything as it is."""
        self.display = False
        self.screen.query_one(WholeLog).focus()


class LogScreen(OwnKeysScreen):
    """Follows the end until you scroll up; Escape goes back."""

    BINDINGS = [Binding("escape", "app.pop_screen", "Back")]
    APP_KEYS = frozenset({"follow", "help_panel"})

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self._shown: tuple[bool, bool, bool] | None = None

    def compose(self) -> ComposeResult:
        """The log, where it is, and the keys."""
        yield WholeLog(id="full-log")
        yield FindLine()
        yield Static(id="log-place", markup=False)
        yield KeyLine()

    def on_mount(self) -> None:
        """The keys are the log's."""
        self.query_one(WholeLog).focus()

    def show_log(self, state: HostState) -> None:
        """Add what is new."""
        for log in self.query(WholeLog):
            log.show(state.log_of(self.job_id), f"log of {self.job_id}")
            self._show_place()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Mark what matches; nothing typed marks nothing."""
        event.stop()
        self.query_one(FindLine).action_close()
        self.query_one(WholeLog).find(event.value)

    def on_log_moved(self) -> None:
        """Say where the log is now."""
        self._show_place()

    def _show_place(self) -> None:
        line, log = self.query_one("#log-place", Static), self.query_one(WholeLog)
        line.update(place_words(log))
        line.set_class(not log.following, "-still")
        shown = (log.following, log.wraps, bool(log.finds))
        if shown != self._shown:
            self._shown = shown
            self.refresh_bindings()


def place_words(log: LogPane) -> str:
    """Which lines, which match, whether they follow, how they are cut and what is looked for: what can be missed comes last."""
    place = log.place
    words = [f"lines {place.first:,} to {place.last:,} of {place.count:,}" if place.count else "no lines yet"]
    if log.finds:
        which = f"match {place.match or '-'} of {place.matches:,}" if place.matches else "no match"
        words.append(f"{which}, other lines left out" if log.only_matches else which)
    words.append("following" if log.following else f"{place.unseen:,} new below")
    if log.wraps:
        words.append("wrapped")
    elif place.column:
        words.append(f"from column {place.column + 1}")
    if log.finds:
        words.append(f"/{log.finds}")
    return " · ".join(words)
