"""Themes are TOML files of colour data; this turns them into Textual's."""

from importlib.resources import files

import msgspec
import tomllib
from textual.theme import Theme

DEFAULT = "roost-dark"


class ThemeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A theme as its file has it; colours are `#rrggbb`."""

    name: str
    dark: bool
    primary: str
    secondary: str
    accent: str
    foreground: str
    background: str
    surface: str
    panel: str
    success: str
    warning: str
    error: str
    variables: dict[str, str]


def load_themes() -> list[Theme]:
    """The themes that ship with Roost, by name."""
    found = [
        msgspec.convert(tomllib.loads(entry.read_text(encoding="utf-8")), ThemeFile)
        for entry in files("themes").iterdir()
        if entry.name.endswith(".toml")
    ]
    return [Theme(**msgspec.to_builtins(theme)) for theme in sorted(found, key=lambda theme: theme.name)]
