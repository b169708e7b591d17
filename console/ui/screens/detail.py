"""Something in full on the whole screen, kept up to date while it is looked at."""

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.markup import escape
from textual.widgets import Static

from console.state.host import HostState
from console.ui.screens.own_keys import OwnKeysScreen
from console.ui.views.diagnoses import diagnoses_view
from console.ui.views.gpus import gpus_view
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.palette import Palette


class DetailScreen(OwnKeysScreen):
    """A text that scrolls; Escape goes back. Abstract by `view` alone: Textual's metaclass leaves no room for that of abstract classes."""

    BINDINGS = [Binding("escape", "app.pop_screen", "Back")]
    APP_KEYS = OwnKeysScreen.APP_KEYS | {"diagnoses", "gpus"}
    TITLE_TEXT = ""

    def compose(self) -> ComposeResult:
        """The text and the keys."""
        with VerticalScroll(classes="detail") as scroll:
            scroll.border_title = escape(self.TITLE_TEXT)
            yield Static(id="detail-text")
        yield KeyLine()

    def on_mount(self) -> None:
        """The arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def show(self, state: HostState, now: float, host_now: float, palette: Palette) -> None:
        """Render the state as it is at `now`."""
        if not self.is_mounted or not self.query("#detail-text"):
            return
        width = self.query_one(VerticalScroll).content_size.width or 76
        self.query_one("#detail-text", Static).update(self.view(state, now, host_now, palette, width))

    def view(self, state: HostState, now: float, host_now: float, palette: Palette, width: int) -> RenderableType:
        """What there is to read."""
        raise NotImplementedError


class DiagnosesScreen(DetailScreen):
    """What is wrong, in full."""

    TITLE_TEXT = "Diagnoses"

    def view(self, state: HostState, now: float, host_now: float, palette: Palette, width: int) -> RenderableType:  # noqa: ARG002
        """Each diagnosis and alert."""
        return diagnoses_view(state, now, host_now, palette)


class GpusScreen(DetailScreen):
    """Each device in full."""

    TITLE_TEXT = "GPUs"

    def view(self, state: HostState, now: float, host_now: float, palette: Palette, width: int) -> RenderableType:  # noqa: ARG002
        """Everything that is known of the devices."""
        return gpus_view(state, host_now, palette, width)
