"""Records as plain JSON, for the parts of a job that have the standard library alone."""

import json
from pathlib import Path
from typing import Any


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
