"""The alerts in a line; Enter or a click on it opens what is known of them."""

from rich.text import Text
from textual.binding import Binding

from console.state.alerts import Alert
from console.ui.messages import AlertsOpened
from console.ui.widgets.lines import Lines


class AlertLine(Lines, can_focus=True):
    """Shows alerts, the gravest first, or that there are none."""

    BINDINGS = [Binding("enter", "open", "Show what is known of each alert", show=False)]
    HELP = (
        "What wants somebody, the gravest first: the link, what the host's recorder found to be wrong, and jobs. "
        "✗ must be acted on, ! should be looked at."
    )

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, markup=False)

    def show(self, found: list[Alert]) -> None:
        """Render the alerts."""
        self.put(Text("  ".join(map(str, found)) if found else "no alerts"))
        self.set_class(bool(found), "-alerting")

    def on_click(self) -> None:
        """The same as Enter."""
        self.action_open()

    def action_open(self) -> None:
        """Tell that somebody wants to know more."""
        self.post_message(AlertsOpened())
