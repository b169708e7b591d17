"""A person's own keys: `[keys]` of `keys.toml`, an action's id and the key that it shall have."""

import difflib
import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import tomllib
from textual.keys import _character_to_key

from console.config.locations import config_directory
from console.ui.keymap import (
    LOG_ACTIONS,
    OVERVIEW_ACTIONS,
    PLOT_ACTIONS,
    STORAGE_ACTIONS,
    TRAINING_ACTIONS,
    VOCABULARY_ACTIONS,
    Action,
    rebound,
)

_KEY = re.compile(r"(ctrl\+|shift\+|alt\+)*[a-z0-9_]+\Z")
_OWN = (OVERVIEW_ACTIONS, LOG_ACTIONS, PLOT_ACTIONS, TRAINING_ACTIONS, STORAGE_ACTIONS, VOCABULARY_ACTIONS)
_TAKEN = {
    "ctrl+a": "screen's prefix",
    "ctrl+b": "tmux's prefix",
    "ctrl+c": "what leaves Roost in any case",
    "ctrl+p": "the palette's",
    "escape": "the way back",
    "enter": "what opens",
    "tab": "what moves the focus",
}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, str] = {}


class UserKeys(NamedTuple):
    """Keys by the ids of their actions, as Textual names them, and what is wrong with the others."""

    keys: dict[str, str]
    problems: list[str]


def keys_file() -> Path:
    """Where they are configured, whether it is there or not."""
    return config_directory() / "keys.toml"


def load_keys(actions: tuple[Action, ...]) -> UserKeys:
    """What the file says of `actions`, which an app has on all its screens, and of the actions of single screens."""
    try:
        asked = msgspec.convert(tomllib.loads(keys_file().read_text(encoding="utf-8")), _File).keys
    except FileNotFoundError:
        return UserKeys({}, [])
    except (OSError, UnicodeDecodeError, ValueError) as error:
        return UserKeys({}, [f"{keys_file()}: {error}"])
    known = {action.id for action in (*actions, *(action for own in _OWN for action in own))}
    keys: dict[str, str] = {}
    problems: list[str] = []
    for name, key in asked.items():
        plain = _character_to_key(key) if len(key) == 1 else key.lower()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            problems.append(f"keys.toml: there is no action {name!r}" + (f"; {near[0]!r} is one" if near else ""))
        elif plain in _TAKEN:
            problems.append(f"keys.toml: {name} cannot have {key!r}: it is {_TAKEN[plain]}")
        elif not (_KEY.match(plain) or len(plain) == 1):
            problems.append(f"keys.toml: {name} cannot have {key!r}, which is no key")
        elif (other := _holder(name, plain, actions, {**keys, name: plain})) is not None:
            problems.append(f"keys.toml: {name} cannot have {key!r}: {other} has it")
        else:
            keys[name] = plain
    return UserKeys(keys, problems)


def _holder(name: str, key: str, actions: tuple[Action, ...], keys: dict[str, str]) -> str | None:
    """Another action that would have the same key on one of the screens."""
    for own in _OWN:
        table = rebound((*actions, *own), keys)
        if any(action.id == name for action in table):
            for action in table:
                if action.id != name and action.key == key:
                    return action.id
    return None
