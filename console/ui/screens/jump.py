"""Jump mode: a letter on everything that can have the keyboard, on every row and on every page's title; the letter goes there."""

import string
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

from textual.app import ComposeResult
from textual.events import Click, Key
from textual.geometry import Offset
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Static

from console.ui.widgets.page_tabs import PageTabs

_LETTERS = "asdfghjkl" + "".join(sorted(set(string.ascii_lowercase) - set("asdfghjkl")))
"""Those under the fingers first."""


class Target(NamedTuple):
    """Where a label stands on the screen, and what going there does."""

    at: Offset
    go: Callable[[], object]


def labels(count: int) -> list[str]:
    """`count` different labels of letters, none the beginning of another; one letter each while that is enough."""
    length = 1
    while len(_LETTERS) ** length < count:
        length += 1
    return ["".join(letters) for letters, _ in zip(product(_LETTERS, repeat=length), range(count), strict=False)]


def targets(screen: Screen[object]) -> list[Target]:
    """What can be gone to on `screen` as it is seen now, from the top down and from left to right."""
    found = [target for tabs in screen.query(PageTabs) if tabs.region for target in _titles(tabs)]
    for widget in screen.focus_chain:
        seen = screen.find_widget(widget).visible_region
        if not seen:
            continue
        rows = _rows(widget) if isinstance(widget, DataTable) else []
        found += rows or [Target(seen.offset, widget.focus)]
    return sorted(found, key=lambda target: (target.at.y, target.at.x))


def _titles(tabs: PageTabs) -> list[Target]:
    return [Target(tabs.region.offset + Offset(start, 0), partial(tabs.open, name)) for start, name in tabs.starts]


def _rows(table: DataTable[object]) -> list[Target]:
    """Each row that is seen; one that is gone to has the cursor."""
    heading = table.header_height if table.show_header else 0
    content, first = table.content_region, round(table.scroll_y)
    seen = range(first, min(table.row_count, first + content.height - heading))
    return [
        Target(content.offset + Offset(0, heading + row - first), partial(_move_cursor, table, row)) for row in seen
    ]


def _move_cursor(table: DataTable[object], row: int) -> None:
    table.focus()
    table.move_cursor(row=row)


class JumpScreen(ModalScreen[Callable[[], object] | None]):
    """The labels over what they stand for; a label that is typed ends it with what going there does, anything else with None."""

    def __init__(self, found: list[Target]) -> None:
        super().__init__()
        self._found = dict(zip(labels(len(found)), found, strict=True))
        self._typed = ""

    def compose(self) -> ComposeResult:
        """A label each, and how it works."""
        for label, target in self._found.items():
            mark = Static(label, classes="jump-label", markup=False)
            mark.styles.offset = target.at
            yield mark
        yield Static("Type a letter to go there; any other key goes back.", id="jump-help", markup=False)

    def on_key(self, event: Key) -> None:
        """A letter of a label, or the way back."""
        event.stop()
        event.prevent_default()
        self._typed += event.character or event.key
        if self._typed in self._found:
            self.dismiss(self._found[self._typed].go)
        elif not any(label.startswith(self._typed) for label in self._found):
            self.dismiss(None)
        else:
            for mark in self.query(".jump-label").results(Static):
                mark.display = str(mark.content).startswith(self._typed)

    def on_click(self, event: Click) -> None:
        """The mouse needs no labels."""
        event.stop()
        self.dismiss(None)
