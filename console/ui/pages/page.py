"""What every page has: where it is, the devices, disk and jobs that no page goes without, the alerts and the keys."""

from collections.abc import Coroutine
from typing import ClassVar

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from console.errors import ConsoleError
from console.state.host import HostState
from console.state.sanitize import one_line
from console.ui.screens.own_keys import OwnKeysScreen
from console.ui.session import HostSession
from console.ui.widgets.alert_line import AlertLine
from console.ui.widgets.cramped import LEAST_COLUMNS, LEAST_ROWS, TOO_LOW, TOO_NARROW, Cramped
from console.ui.widgets.glance import Glance
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.page_tabs import PageTabs
from console.ui.widgets.top_bar import TopBar
from console.ui.widgets.vitals import Vitals


class Page(OwnKeysScreen):
    """A page under its tab; Escape goes to the overview.

    A subclass names itself as `keymap.PAGES` does, yields its widgets in `content`, and draws them in `show_content`. One that
    has to ask the host sets `asks_every_s` and asks in `ask`; a question that failed is in `failed` until the next one.

    Textual's metaclass leaves no room for that of abstract classes, so what a subclass must have raises NotImplementedError here.
    """

    HORIZONTAL_BREAKPOINTS = [(0, TOO_NARROW), (LEAST_COLUMNS, "-fits-across")]
    VERTICAL_BREAKPOINTS = [(0, TOO_LOW), (LEAST_ROWS, "-fits-down")]
    BINDINGS = [Binding("escape", "app.page('overview')", "Overview")]
    APP_KEYS = frozenset({"pages", "diagnoses", "help_panel", "leave"})
    NAME: ClassVar[str] = ""
    asks_every_s: ClassVar[float | None] = None
    failed: str = ""
    session: HostSession | None = None
    """The host, once there is one."""
    host_name: str = ""
    root: str = ""

    def compose(self) -> ComposeResult:
        """Top to bottom; what is the page's own takes the room that the rest leaves."""
        yield Cramped()
        yield TopBar(id="top-bar")
        yield PageTabs()
        yield Vitals(classes="vitals")
        yield from self.content()
        yield AlertLine(id="alerts")
        yield KeyLine()

    def content(self) -> ComposeResult:
        """The page's own widgets."""
        raise NotImplementedError

    def show_content(self, glance: Glance) -> None:
        """Draw them; called once a second and when something changed."""
        raise NotImplementedError

    async def ask(self, session: HostSession) -> None:
        """Ask the host for what it does not stream; raises ConsoleError."""

    async def ask_and_keep(self, session: HostSession) -> None:
        """As `ask`, with what went wrong kept in `failed`."""
        try:
            await self.ask(session)
            self.failed = ""
        except ConsoleError as error:
            self.failed = one_line(error.info.message)

    def run_operation(self, work: Coroutine[None, None, None]) -> None:
        """Ask a person and act; what goes wrong is shown with its hint, as with the app's own actions."""
        self.app.run_worker(work, group="operation", exclusive=True, exit_on_error=False)

    def wanted_logs(self, state: HostState) -> set[str]:  # noqa: ARG002 - most pages show no log
        """The jobs whose logs are to be streamed while the page is open."""
        return set()

    def show(self, glance: Glance) -> None:
        """Render a look at the host."""
        if not self.is_mounted or not self.query(KeyLine):
            return
        self.host_name = glance.state.name
        self.root = "" if glance.state.welcome is None else glance.state.welcome.root
        self.query_one(TopBar).show(
            glance.state, glance.now, glance.host_now, glance.found, glance.palette, replay=glance.replay
        )
        self.query_one(PageTabs).show(self.NAME, glance.palette, columns=self.size.width)
        self.query_one(Cramped).show(glance)
        self.query_one(Vitals).show(glance)
        self.query_one(AlertLine).show(glance.found)
        self.show_content(glance)


class TextPage(Page):
    """A page that is a text which scrolls."""

    def content(self) -> ComposeResult:
        """The text."""
        with VerticalScroll(classes="page-scroll"):
            yield Static(classes="page-text")

    def on_mount(self) -> None:
        """The arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def show_content(self, glance: Glance) -> None:
        """Lay the text out anew."""
        scroll = self.query_one(".page-scroll", VerticalScroll)
        self.query_one(".page-text", Static).update(self.view(glance, scroll.content_size.width or 76))

    def view(self, glance: Glance, width: int) -> RenderableType:
        """What there is to read."""
        raise NotImplementedError
