"""All configured hosts."""

from rich.console import RenderableType
from rich.text import Text

from console import operations
from console.ui.pages.page import TextPage
from console.ui.views.rows import labelled_rows
from console.ui.widgets.glance import Glance


class HostsPage(TextPage):
    """The hosts by name."""

    NAME = "hosts"

    def view(self, glance: Glance, width: int) -> RenderableType:  # noqa: ARG002 - the interface of all pages
        """Their addresses."""
        rows = [(name, host.address) for name, host in operations.list_hosts().items()]
        return (
            labelled_rows(rows, glance.palette, 20)
            if rows
            else Text("no host in roost.toml", style=glance.palette.quiet)
        )
