"""The hosts side by side: a line each where it is narrow, cards where it is wide; Enter or a click shows one."""

from textual.binding import Binding
from textual.containers import Grid
from textual.widgets import Static

from console.ui.messages import HostWanted
from console.ui.views.host_cards import NARROW, HostLook, host_card, host_line
from console.ui.widgets.palette import Palette

_CARD_COLUMNS = 64
"""A card needs so much; more of them stand beside each other where there is room."""


class HostCard(Static, can_focus=True):
    """One host."""

    BINDINGS = [
        Binding("enter", "choose", "Show it"),
        Binding("down,right", "app.focus_next", show=False),
        Binding("up,left", "app.focus_previous", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(markup=False)
        self.host_name = name

    def action_choose(self) -> None:
        """Show this host on all pages."""
        self.post_message(HostWanted(self.host_name))

    def on_click(self) -> None:
        """The same by a click."""
        self.action_choose()


class HostCards(Grid):
    """As many cards as there are hosts, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self._cards: list[HostCard] = []

    def show(self, looks: list[HostLook], now: float, palette: Palette) -> None:
        """Draw them; other hosts get other cards."""
        width = self.size.width or 78
        wide = width >= NARROW
        self.set_class(wide, "-wide")
        across = min(len(looks), max(1, width // _CARD_COLUMNS)) if wide else 1
        self.styles.grid_size_columns = max(1, across)
        if [card.host_name for card in self._cards] != [look.name for look in looks]:
            self._replace(
                [HostCard(look.name) for look in looks], next((look.name for look in looks if look.is_shown), "")
            )
        for card, look in zip(self._cards, looks, strict=True):
            room = card.content_size.width or width // max(1, across) - 4
            card.update(host_card(look, now, palette, room) if wide else host_line(look, now, palette, room))

    def _replace(self, cards: list[HostCard], shown: str) -> None:
        """The focus stays on its host, and begins on the one that is shown."""
        focused = next((card.host_name for card in self._cards if card.has_focus), shown)
        self._cards = cards
        self.remove_children()
        self.mount_all(cards)
        card = next((card for card in cards if card.host_name == focused), None)
        if card is not None:
            self.call_after_refresh(card.focus)
