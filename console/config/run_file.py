"""Changes single keys of a person's run file and leaves their comments and their order as they are."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from console.errors import UsageError

_REPLACED = "it is replaced whole: its directory must be one that you can write to"


def obstacle_to_writing(path: Path) -> str | None:
    """Why `write_settings` would fail for a file that is there, as far as that can be told before; None where nothing is seen."""
    directory = path.resolve().parent
    return None if os.access(directory, os.W_OK, effective_ids=True) else f"{path} cannot be changed: {_REPLACED}"


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Set keys such as `engine.flags.max-total-tokens` in the file at `path`, which is replaced whole; a link to it stays one.

    Raises UsageError where it cannot be read or written, is no TOML, or has something else where a section should be.
    """
    part: Path | None = None
    try:
        file = path.resolve(strict=True)
        text = file.read_bytes().decode("utf-8")
        ends = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
        document = tomlkit.parse(text.replace("\r\n", "\n"))
        for key, value in settings.items():
            _set(document, key.split("."), value, path)
        part = file.with_name(f".{file.name}.part")
        part.write_bytes(tomlkit.dumps(document).replace("\n", ends).encode("utf-8"))
        part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    except OSError as error:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be changed: {error.strerror}", hint=_REPLACED) from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from error


def _set(table: Any, keys: list[str], value: Any, path: Path) -> None:  # noqa: ANN401 - tomlkit's own containers
    *sections, last = keys
    for depth, section in enumerate(sections, 1):
        if section not in table:
            table[section] = tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table()
        table = table[section]
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {'.'.join(sections[:depth])} is no section")
    table[last] = value
