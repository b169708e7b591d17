"""Loss, accuracy and rates."""

from textual.app import ComposeResult

from console.state.training_plots import training_plots
from console.ui.pages.page import Page
from console.ui.widgets.glance import Glance
from console.ui.widgets.plots import Plots


class TrainingPage(Page):
    """The curves of the newest training, also of one that is over, and of the host under it."""

    NAME = "training"
    APP_KEYS = frozenset({"help_panel", "leave"})

    def content(self) -> ComposeResult:
        """The curves."""
        yield Plots(id="page-plots")

    def on_mount(self) -> None:
        """The arrow keys read and zoom."""
        self.query_one(Plots).focus()

    def show_content(self, glance: Glance) -> None:
        """Draw them."""
        self.query_one(Plots).show(training_plots(glance.state), glance.state.readings.marks.all, glance.palette)
