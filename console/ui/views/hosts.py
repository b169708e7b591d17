"""What the host is that the screen shows."""

from rich.console import Group, RenderableType
from rich.text import Text

from console.state.host import HostState
from console.state.moments import format_moment
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette

_LABELS = 14


def host_view(state: HostState, palette: Palette) -> RenderableType:
    """Machine, root, Python and release, once the host has said them."""
    heading = Text(state.name, style=f"bold {palette.primary}")
    if state.welcome is None:
        return heading
    welcome = state.welcome
    packages = ", ".join(f"{each.name} {each.version}" for each in welcome.packages if each.version)
    rows = [
        ("machine", f"{welcome.user} on {welcome.host_name}, up since {format_moment(welcome.boot_at)}"),
        ("root", welcome.root),
        ("Python", f"{welcome.python_version}, {welcome.python}"),
        ("packages", packages),
        ("release", welcome.release[:12]),
    ]
    return Group(heading, labelled_rows(rows, palette, _LABELS))
