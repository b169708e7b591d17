"""Themes are TOML files of colour data, those that ship with Roost and a person's own; this turns them into Textual's."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import msgspec
import tomllib
from textual.theme import Theme

from console.config.locations import config_directory

DEFAULT = "roost-dark"
WITHOUT_COLOR = "terminal"

_COLOR = re.compile(r"#[0-9a-fA-F]{6}\Z|ansi_(default|(bright_)?(black|red|green|yellow|blue|magenta|cyan|white))\Z")
_VARIABLES = frozenset({"quiet", "bar-empty", "level-1", "level-2", "level-3", "level-4"})


_TEXTUALS_ANSI = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-selection-background": "ansi_bright_blue",
    "input-selection-foreground": "ansi_black",
    "screen-selection-background": "ansi_bright_blue",
    "screen-selection-foreground": "ansi_black",
}
"""What Textual's own styles ask of a theme in the terminal's colours."""


class ThemeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A theme as its file has it; colours are `#rrggbb`, or with `ansi` the terminal's own (`ansi_blue`, `ansi_default`, …)."""

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
    ansi: bool = False


class Themes(NamedTuple):
    """The themes by name, those of a person's own in place of ours, and what is wrong with files that are left out."""

    themes: list[Theme]
    problems: list[str]


def user_directory() -> Path:
    """Where a person's own themes lie."""
    return config_directory() / "themes"


def load_themes() -> Themes:
    """All themes that there are now."""
    found: dict[str, Theme] = {}
    problems: list[str] = []
    for entry in theme_files():
        try:
            theme = parse_theme(entry.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            problems.append(f"the theme {entry} is left out: {error}")
        else:
            found[theme.name] = theme
    return Themes([found[name] for name in sorted(found)], problems)


def parse_theme(text: str) -> Theme:
    """A theme of its file's text; raises ValueError that names the key."""
    theme = msgspec.convert(tomllib.loads(text), ThemeFile)
    lacking = _VARIABLES - theme.variables.keys()
    if lacking:
        raise ValueError(f"[variables] lacks {', '.join(sorted(lacking))}")
    colors = {key: value for key, value in msgspec.structs.asdict(theme).items() if isinstance(value, str)}
    for key, value in (*colors.items(), *theme.variables.items()):
        if key != "name" and not _COLOR.match(value):
            raise ValueError(f"{key} = {value!r} is no colour such as #7aa2f7 or ansi_blue")
    if theme.ansi:
        theme = msgspec.structs.replace(theme, variables={**_TEXTUALS_ANSI, **theme.variables})
    return Theme(**msgspec.to_builtins(theme))


def theme_files() -> list[Traversable]:
    """All of them, ours first: what comes later takes the place of what has the same name."""
    ours = [entry for entry in files("themes").iterdir() if entry.name.endswith(".toml")]
    own = sorted(user_directory().glob("*.toml")) if user_directory().is_dir() else []
    return [*ours, *own]
