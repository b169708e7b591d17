"""The inbox: a line a request, and the one that is chosen in full."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.state.approvals import MARKS, details, state_words
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.ui.widgets.palette import Palette
from remote.protocol.approvals import Approval

_MOST_ROWS = 12


def approvals_view(found: Sequence[Approval], chosen: Approval | None, palette: Palette) -> RenderableType:
    """What waits comes first; `chosen` is marked."""
    if chosen is None:
        words = "nothing waits here, and nothing was asked: what agents may not do by themselves comes here"
        return Text(words, style=palette.quiet)
    at = next((index for index, each in enumerate(found) if each.approval_id == chosen.approval_id), 0)
    first = max(0, min(at - _MOST_ROWS // 2, len(found) - _MOST_ROWS))
    rows = [_row(each, palette, is_chosen=each is found[at]) for each in found[first : first + _MOST_ROWS]]
    if len(found) > len(rows):
        rows.append(Text(f"  {at + 1} of {len(found)}", style=palette.quiet))
    heading = Text(f"\n{chosen.approval_id}", style=f"bold {palette.primary}")
    heading.append(f"  {one_line(state_words(chosen))}", style=_color(chosen, palette))
    return Group(*rows, heading, _in_full(chosen, palette))


def _in_full(chosen: Approval, palette: Palette) -> Table:
    """Nothing of it is cut: a person says yes to all of it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True, style=palette.quiet)
    table.add_column(overflow="fold", style=palette.foreground)
    for label, words in details(chosen):
        table.add_row("", Text(one_line(label)), Text(one_line(words)))
    return table


def _row(each: Approval, palette: Palette, *, is_chosen: bool) -> Text:
    line = Text("▸ " if is_chosen else "  ", style=palette.primary, no_wrap=True, overflow="ellipsis")
    line.append(f"{MARKS[each.state]} {each.state:<9} ", style=_color(each, palette))
    line.append(f"{format_moment(each.asked_at)}  ", style=palette.quiet)
    line.append(f"{one_line(each.asked_by)}  ", style=palette.accent)
    line.append(one_line(f"{each.action.replace('_', ' ')} {each.subject}"), style=palette.foreground)
    return line


def _color(each: Approval, palette: Palette) -> str:
    if each.state == "waiting":
        return palette.warning
    return palette.success if each.state == "approved" and each.error is None else palette.quiet
