"""The log of the selected job on a page."""

from textual.app import ComposeResult

from console.ui.pages.page import Page
from console.ui.widgets.glance import Glance
from console.ui.widgets.log_pane import LogPane


class LogsPage(Page):
    """The selected job's log."""

    NAME = "logs"

    def content(self) -> ComposeResult:
        """The log."""
        yield LogPane(id="page-log")

    def on_mount(self) -> None:
        """The keys are the log's."""
        self.query_one(LogPane).focus()

    def show_content(self, glance: Glance) -> None:
        """Add what is new."""
        for pane in self.query(LogPane):
            if glance.shown_job is None:
                pane.show(None, "no job yet")
            else:
                job_id = glance.shown_job.job_id
                pane.show(glance.state.log_of(job_id), f"log of {job_id}")
