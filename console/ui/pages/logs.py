"""The log of the selected job on a page."""

from textual.app import ComposeResult

from console.ui.pages.page import Page
from console.ui.widgets.glance import Glance
from console.ui.widgets.log_reader import LogReader


class LogsPage(Page):
    """The selected job's log."""

    NAME = "logs"
    APP_KEYS = frozenset({"page('overview')", "follow", "help_panel", "leave"})

    def content(self) -> ComposeResult:
        """The log."""
        yield LogReader(id="page-log")

    def show_content(self, glance: Glance) -> None:
        """Add what is new."""
        for reader in self.query(LogReader):
            if glance.shown_job is None:
                reader.show(None, "no job yet")
            else:
                job_id = glance.shown_job.job_id
                reader.copy_name = job_id
                reader.show(glance.state.log_of(job_id), f"log of {job_id}")
