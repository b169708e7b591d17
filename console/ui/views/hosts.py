"""The host of this screen in full, then the others that are configured."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from console.config.hosts import HostConfig
from console.state.host import HostState
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.widgets.top_bar import link_text

_LABELS = 14


def hosts_view(state: HostState, now: float, hosts: Mapping[str, HostConfig] | str, palette: Palette) -> RenderableType:
    """`hosts` are those of roost.toml by name, or what is wrong with that file."""
    heading = Text(f"{state.name}  ", style=f"bold {palette.primary}")
    heading.append_text(link_text(state, now, palette))
    parts: list[RenderableType] = [heading]
    if state.welcome is not None:
        welcome = state.welcome
        packages = ", ".join(f"{each.name} {each.version}" for each in welcome.packages if each.version)
        parts.append(
            labelled_rows(
                [
                    ("machine", f"{welcome.user} on {welcome.host_name}, up since {format_moment(welcome.boot_at)}"),
                    ("root", welcome.root),
                    ("Python", f"{welcome.python_version}, {welcome.python}"),
                    ("packages", packages),
                    ("release", welcome.release[:12]),
                ],
                palette,
                _LABELS,
            )
        )
    parts.append(Text("\nConfigured", style=f"bold {palette.primary}"))
    if isinstance(hosts, str):
        parts.append(Text(f"  ✗ {one_line(hosts)}", style=palette.error))
    elif hosts:
        parts.append(labelled_rows([(name, host.address) for name, host in hosts.items()], palette, _LABELS))
        parts.append(Text("  `roost --host NAME` opens one", style=palette.quiet))
    else:
        parts.append(Text("  no other host; [hosts.NAME] in roost.toml adds one", style=palette.quiet))
    return Group(*parts)
