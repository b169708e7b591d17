"""Loss, accuracy and rates."""

from textual.app import ComposeResult

from console.ui.pages.page import Page
from console.ui.widgets.charts import Charts
from console.ui.widgets.glance import Glance


class TrainingPage(Page):
    """The curves of the newest training, also of one that is over."""

    NAME = "training"

    def content(self) -> ComposeResult:
        """The curves."""
        yield Charts(id="page-charts")

    def show_content(self, glance: Glance) -> None:
        """Draw them."""
        self.query_one(Charts).show(glance.state, glance.palette, rows=self.query_one(Charts).size.height)
