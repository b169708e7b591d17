"""A job's log on the whole screen."""

from textual.app import ComposeResult
from textual.binding import Binding

from console.state.host import HostState
from console.ui.screens.own_keys import OwnKeysScreen
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.log_reader import LogReader


class LogScreen(OwnKeysScreen):
    """Follows the end until you scroll up; Escape goes back."""

    BINDINGS = [Binding("escape", "app.pop_screen", "Back")]
    APP_KEYS = frozenset({"follow", "help_panel"})

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def compose(self) -> ComposeResult:
        """The log and the keys."""
        yield LogReader(id="full-log")
        yield KeyLine()

    def show_log(self, state: HostState) -> None:
        """Add what is new."""
        for reader in self.query(LogReader):
            reader.copy_name = self.job_id
            reader.show(state.log_of(self.job_id), f"log of {self.job_id}")
