"""All configured hosts, and the journal of this one."""

from rich.console import Group, RenderableType
from rich.text import Text

from console import operations
from console.errors import ConsoleError
from console.ui.pages.page import TextPage
from console.ui.session import HostSession
from console.ui.views.hosts import hosts_view
from console.ui.views.journal import journal_view
from console.ui.widgets.glance import Glance
from remote.protocol.journal import JournalEntry


class HostsPage(TextPage):
    """This screen's host, then the others by name, then who changed what on this one."""

    NAME = "hosts"
    asks_every_s = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[JournalEntry] = []

    async def ask(self, session: HostSession) -> None:
        """What was asked of the host."""
        self._entries = await session.read_journal()

    def view(self, glance: Glance, width: int) -> RenderableType:  # noqa: ARG002 - the interface of all pages
        """The hosts, or what is wrong with the file that names them."""
        try:
            hosts = operations.list_hosts()
        except ConsoleError as error:
            hosts = error.info.message
        shown = hosts_view(glance.state, glance.now, hosts, glance.palette)
        if self.failed:
            return Group(shown, Text(f"\n✗ {self.failed}", style=glance.palette.error))
        return Group(shown, journal_view(self._entries, glance.host_now, glance.palette))
