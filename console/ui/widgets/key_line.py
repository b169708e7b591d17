"""The keys at the bottom: they stand closer together where they would not all fit."""

from textual.screen import Screen
from textual.widgets import Footer


class KeyLine(Footer):
    """The footer, without the palette's key."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def on_resize(self) -> None:
        """Another width."""
        self._fit()

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Other keys."""
        self._fit()
        super().bindings_changed(screen)

    def _fit(self) -> None:
        keys = {
            active.binding.action: active.binding
            for active in self.screen.active_bindings.values()
            if active.binding.show
        }
        spaces = 3
        wanted = sum(len(self.app.get_key_display(key)) + len(key.description) + spaces for key in keys.values())
        self.compact = wanted > self.size.width
