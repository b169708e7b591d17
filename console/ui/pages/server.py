"""The inference servers, and what was measured of them."""

from rich.console import RenderableType

from console.ui.pages.page import TextPage
from console.ui.views.servers import servers_view
from console.ui.widgets.glance import Glance


class ServerPage(TextPage):
    """Running engines, then benchmarks, tunings and evaluations."""

    NAME = "server"

    def view(self, glance: Glance, width: int) -> RenderableType:
        """Everything that serves or was measured."""
        return servers_view(glance.state, glance.host_now, glance.palette, width)
