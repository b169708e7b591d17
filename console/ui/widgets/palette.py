"""The theme's colours by role, for text that is drawn by hand; without colour (NO_COLOR) every role is the same."""

from collections.abc import Mapping
from typing import Self

_ROLES = ("primary", "accent", "foreground", "success", "warning", "error", "quiet", "bar-empty")
_LEVELS = ("level-1", "level-2", "level-3", "level-4")


class Palette:
    """Colours as `#rrggbb`, or by the names that Rich has for the terminal's own."""

    def __init__(self, colors: Mapping[str, str]) -> None:
        self._colors = dict(colors)

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """The colours of a theme's CSS variables."""
        return cls({role: variables[role].removeprefix("ansi_") for role in (*_ROLES, *_LEVELS)})

    def __getitem__(self, role: str) -> str:
        return self._colors[role]

    @property
    def primary(self) -> str:
        """What is selected or named."""
        return self["primary"]

    @property
    def accent(self) -> str:
        """What moves."""
        return self["accent"]

    @property
    def foreground(self) -> str:
        """Plain text."""
        return self["foreground"]

    @property
    def success(self) -> str:
        """What is well."""
        return self["success"]

    @property
    def warning(self) -> str:
        """What wants a look."""
        return self["warning"]

    @property
    def error(self) -> str:
        """What is broken."""
        return self["error"]

    @property
    def quiet(self) -> str:
        """What may be overlooked."""
        return self["quiet"]

    def fullness(self, fraction: float) -> str:
        """The colour of something that must not run full."""
        return self["error" if fraction >= 0.95 else "warning" if fraction >= 0.85 else "primary"]

    def level(self, fraction: float) -> str:
        """One of four colours for a load from 0 to 1."""
        return self[_LEVELS[min(3, max(0, int(fraction * 4)))]]
