"""All configured hosts side by side, then what the shown one is and who changed what on it."""

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from console.ui.pages.page import Page
from console.ui.session import HostSession
from console.ui.views.hosts import host_view
from console.ui.views.journal import journal_view
from console.ui.widgets.glance import Glance
from console.ui.widgets.host_cards import HostCards
from remote.protocol.journal import JournalEntry


class HostsPage(Page):
    """While it is open the app looks at the configured hosts, each over a link of its own."""

    NAME = "hosts"
    asks_every_s = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[JournalEntry] = []

    def content(self) -> ComposeResult:
        """The hosts, a line about them, and what there is to read of the shown one."""
        yield HostCards()
        yield Static(classes="page-line", markup=False)
        with VerticalScroll(classes="page-scroll", can_focus=False):
            yield Static(classes="page-text")

    async def ask(self, session: HostSession) -> None:
        """What was asked of the host."""
        self._entries = await session.read_journal()

    def show_content(self, glance: Glance) -> None:
        """The hosts, or what is wrong with the file that names them."""
        looks, problem = self.app.look_at_hosts()  # pyright: ignore[reportAttributeAccessIssue] - the app's own
        palette = glance.palette
        self.query_one(HostCards).show(looks, glance.now, palette)
        if problem:
            words = Text(f"✗ {problem}", style=palette.error)
        elif len(looks) == 1:
            words = Text("no other host; [hosts.NAME] in roost.toml adds one", style=palette.quiet)
        else:
            words = Text("Enter or a click shows a host on all pages; the others stay as they are", style=palette.quiet)
        self.query_one(".page-line", Static).update(words)
        shown = host_view(glance.state, palette)
        if self.failed:
            text = Group(shown, Text(f"\n✗ {self.failed}", style=palette.error))
        else:
            text = Group(shown, journal_view(self._entries, glance.host_now, palette))
        self.query_one(".page-text", Static).update(text)
