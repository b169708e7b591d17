"""A screen that lies over the overview: its footer has its own keys, and of the app's those alone that matter here."""

from dataclasses import replace
from typing import ClassVar

from textual.binding import ActiveBinding
from textual.screen import Screen


class OwnKeysScreen(Screen[None]):
    """All keys work; the footer leaves out what is on that of the overview already."""

    APP_KEYS: ClassVar[frozenset[str]] = frozenset({"help_panel", "leave"})
    """The app's actions whose keys are in the footer."""

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """As Textual has them, with the app's keys out of sight."""
        return {key: self._seen(active) for key, active in super().active_bindings.items()}

    def _seen(self, active: ActiveBinding) -> ActiveBinding:
        if active.node is not self.app or active.binding.action in self.APP_KEYS:
            return active
        return active._replace(binding=replace(active.binding, show=False))
