"""The console's own directories, after the XDG base directory specification."""

import os
from pathlib import Path


def data_directory() -> Path:
    """What the embedded host needs and makes: `$XDG_DATA_HOME/roost`, by default `~/.local/share/roost`."""
    return _directory("XDG_DATA_HOME", ".local/share")


def config_directory() -> Path:
    """`roost.toml` and the known host keys: `$XDG_CONFIG_HOME/roost`, by default `~/.config/roost`."""
    return _directory("XDG_CONFIG_HOME", ".config")


def state_directory() -> Path:
    """What the screen remembers, and reports of its crashes: `$XDG_STATE_HOME/roost`, by default `~/.local/state/roost`."""
    return _directory("XDG_STATE_HOME", ".local/state")


def _directory(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / "roost"
