"""A job's log on the whole screen."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer

from console.state.host import HostState
from console.ui.widgets.log_pane import LogPane


class LogScreen(Screen[None]):
    """Follows the end until you scroll up; Escape goes back."""

    BINDINGS = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def compose(self) -> ComposeResult:
        """The log and the keys."""
        yield LogPane(id="full-log")
        yield Footer(show_command_palette=False)

    def show_log(self, state: HostState) -> None:
        """Add what is new."""
        self.query_one(LogPane).show(state.log_of(self.job_id), f"log of {self.job_id}")
