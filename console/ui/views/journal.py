"""Who asked the host to change what, the newest first, a line each."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from console.state.moments import format_clock, format_moment
from console.state.sanitize import one_line
from console.ui.widgets.palette import Palette
from remote.protocol.journal import JournalEntry

_ACTOR = 18
_DAY_S = 86_400.0
_SIGNS = {"done": "✓", "refused": "✗", "failed": "✗", "unknown": "?"}


def journal_view(entries: Sequence[JournalEntry], host_now: float, palette: Palette) -> RenderableType:
    """`host_now` is the host's clock: what is older than a day has its date. What was refused is told in full."""
    heading = Text("\nChanges asked of this host", style=f"bold {palette.primary}")
    if not entries:
        return Group(heading, Text("  none yet", style=palette.quiet))
    return Group(heading, *(_line(entry, host_now, palette) for entry in entries))


def _line(entry: JournalEntry, host_now: float, palette: Palette) -> Text:
    is_old = host_now - entry.at > _DAY_S
    is_done = entry.outcome == "done"
    color = palette.success if is_done else palette.warning
    line = Text(f"  {format_moment(entry.at) if is_old else format_clock(entry.at)}  ", style=palette.quiet)
    line.no_wrap, line.overflow = is_done, "ellipsis" if is_done else "fold"
    line.append(f"{_SIGNS[entry.outcome]} ", style=color)
    line.append(f"{one_line(entry.actor)[:_ACTOR]:<{_ACTOR}}  ", style=palette.accent)
    line.append(f"{entry.action.replace('_', ' ')} {one_line(entry.subject)}", style=palette.foreground)
    about = entry.message if entry.message is not None else entry.summary
    said = one_line(about) if is_done else f"{entry.outcome}: {one_line(about)}"
    if said:
        line.append(f"  {said}", style=palette.quiet if is_done else color)
    return line
