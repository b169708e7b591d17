"""Records that survive a crash: written aside, synced, then linked or renamed into place. Standard library only."""

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data` unless it exists; says whether this call created it. Raises OSError (a full disk)."""
    aside = _write_aside(path, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_directory(path.parent)
    return True


def replace(path: Path, data: bytes) -> None:
    """Put `data` in place of what `path` holds; the old content stays until the new one is on disk. Raises OSError."""
    aside = _write_aside(path, data)
    try:
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def encode(record: dict[str, Any]) -> bytes:
    """A record as readable JSON with a newline at its end."""
    return json.dumps(record, indent=1, ensure_ascii=False).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None when it is not there. Raises ValueError when it is no JSON object."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {type(value).__name__}, not an object")  # noqa: TRY004 - one error for "bad content"
    return value


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_aside(path: Path, data: bytes) -> Path:
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return aside
