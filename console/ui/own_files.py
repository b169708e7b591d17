"""A person's own themes and keys, which are read again whenever one of their files has changed."""

from pathlib import Path
from typing import NamedTuple

from textual.theme import Theme

from console.ui.keymap import Action
from console.ui.themes import load_themes, theme_files
from console.ui.user_keys import keys_file, load_keys

Version = tuple[tuple[str, int, int], ...]


class OwnFiles(NamedTuple):
    """All themes that there are, keys by the ids of their actions, and what is wrong with what is left out."""

    themes: list[Theme]
    keys: dict[str, str]
    problems: list[str]


def read_own_files(actions: tuple[Action, ...]) -> OwnFiles:
    """As they are now; `actions` are those that the app has on all its screens."""
    themes, theme_problems = load_themes()
    keys, key_problems = load_keys(actions)
    return OwnFiles(themes, keys, [*theme_problems, *key_problems])


def version() -> Version:
    """Another one whenever a file that a person can edit has changed."""
    paths = [entry for entry in theme_files() if isinstance(entry, Path)]
    return tuple(sorted(_stamp(path) for path in [*paths, keys_file()]))


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0)
    return (str(path), status.st_mtime_ns, status.st_size)
