"""Changes single keys of a person's run file and leaves their comments and their order as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from console.errors import UsageError


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Set keys such as `engine.flags.max-total-tokens` in the file at `path`, which is replaced whole.

    Raises UsageError where it cannot be read or written, is no TOML, or has something else where a section should be.
    """
    path = path.resolve()  # what a link names is changed, and the link stays one
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
        for key, value in settings.items():
            _set(document, key.split("."), value, path)
        part = path.with_name(f".{path.name}.part")
        part.write_text(tomlkit.dumps(document), encoding="utf-8")
        part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be changed: {error.strerror}") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from error


def _set(table: Any, keys: list[str], value: Any, path: Path) -> None:  # noqa: ANN401 - tomlkit's own containers
    *sections, last = keys
    for depth, section in enumerate(sections, 1):
        if section not in table:
            table[section] = tomlkit.table()
        table = table[section]
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {'.'.join(sections[:depth])} is no section")
    table[last] = value
