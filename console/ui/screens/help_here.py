"""F1: what has the keyboard, in a few words, and the keys that it has now."""

from rich.console import Group, RenderableType
from rich.text import Text
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, DataTable, Input

from console.ui.keymap import ACTIONS, PAGES, Action, key_name
from console.ui.screens.dialogs import Notice
from console.ui.texts import two_columns

_OF_KINDS: tuple[tuple[type[Widget], str], ...] = (
    (Input, "A line to type on. Enter takes what is there, Escape leaves everything as it was."),
    (Button, "Enter or a click presses it, Tab goes to the next one."),
    (DataTable, "A table: the arrow keys or a click choose a row, and the keys below are about that row."),
    (VerticalScroll, "A text. The arrow keys, Page Up and Page Down, Home and End or the wheel move it."),
)
"""What is said of a widget that says nothing of itself."""

_MOVES = ("cursor_", "scroll_", "page_")
"""How the actions of Textual's own widgets begin that only move."""

_MORE = "{help_panel} shows all keys and what the words on the screen mean; {jump} jumps by letters; docs/SCREEN.md tells the rest."


class HelpHere(Notice):
    """About whatever has the keyboard on `screen`."""

    def __init__(self, screen: Screen[object]) -> None:
        super().__init__("Help here", help_here(screen))


def help_here(screen: Screen[object]) -> RenderableType:
    """What `screen` is, what has the keyboard there, and the keys of both that do something now."""
    said = [_page_words(screen), _widget_words(screen.focused)]
    parts: list[RenderableType] = [Text("\n\n".join(filter(None, said)))]
    keys = _keys(screen)
    if keys:
        parts += [Text("\nIts keys", style="bold"), two_columns(keys)]
    actions: tuple[Action, ...] = getattr(screen.app, "actions", ACTIONS)
    more = _MORE.format_map({action.id: key_name(action) for action in actions})
    return Group(*parts, Text(f"\n{more}"))


def _page_words(screen: Screen[object]) -> str:
    if screen.HELP:
        return screen.HELP
    if isinstance(screen, ModalScreen):
        return "A dialog: nothing behind it can be reached before it is answered or closed with Escape."
    page = next((page for page in PAGES if page.name == getattr(screen, "NAME", "")), None)
    return "" if page is None else f"The page {page.title}: {page.help[0].lower()}{page.help[1:]}."


def _widget_words(widget: Widget | None) -> str:
    if widget is None:
        return "Nothing has the keyboard: Tab, a click, or j and a letter gives it to something."
    of_its_kind = next((words for kind, words in _OF_KINDS if isinstance(widget, kind)), "")
    return widget.HELP or of_its_kind


def _keys(screen: Screen[object]) -> list[tuple[str, str]]:
    """Keys by what they do; those of the whole app are left to the help of all."""
    keys: dict[str, list[str]] = {}
    moves = False
    for active in screen.active_bindings.values():
        words = active.tooltip or active.binding.description
        edits = isinstance(active.node, Input) and active.binding.action not in ("submit", "close")
        if active.node is screen.app or not active.enabled or not words or edits:
            continue
        if active.binding.action.startswith(_MOVES):
            moves = True
        else:
            keys.setdefault(words, []).append(screen.app.get_key_display(active.binding))
    rows = [(" ".join(dict.fromkeys(names)), words) for words, names in keys.items()]
    return [*rows, ("arrows", "Move; Page Up, Page Down, Home and End by more")] if moves else rows
