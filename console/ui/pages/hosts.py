"""All configured hosts."""

from rich.console import RenderableType

from console import operations
from console.errors import ConsoleError
from console.ui.pages.page import TextPage
from console.ui.views.hosts import hosts_view
from console.ui.widgets.glance import Glance


class HostsPage(TextPage):
    """This screen's host, then the others by name."""

    NAME = "hosts"

    def view(self, glance: Glance, width: int) -> RenderableType:  # noqa: ARG002 - the interface of all pages
        """The hosts, or what is wrong with the file that names them."""
        try:
            hosts = operations.list_hosts()
        except ConsoleError as error:
            hosts = error.info.message
        return hosts_view(glance.state, glance.now, hosts, glance.palette)
