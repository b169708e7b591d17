"""What the screen remembers from one time to the next: `screen.json` among the console's own state."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from console.config.locations import state_directory

FilterKind = Literal["mark", "only", "without"]
"""What becomes of a line of a log that matches what is looked for: it is marked, alone on the screen, or left out."""


class ScreenMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Empty is what nobody has chosen yet; fields of another release are passed over. `job` is one of `host`."""

    theme: str = ""
    host: str = ""
    page: str = ""
    layout: str = ""
    job: str = ""
    log_wraps: bool = False
    log_filter: FilterKind = "mark"


class Recalled(NamedTuple):
    """What was remembered, and what is wrong with the file, which then counts as empty."""

    memory: ScreenMemory
    problem: str = ""


def memory_file() -> Path:
    """Where it lies, whether it is there or not."""
    return state_directory() / "screen.json"


def recall() -> Recalled:
    """What was remembered last."""
    try:
        return Recalled(msgspec.json.decode(memory_file().read_bytes(), type=ScreenMemory))
    except FileNotFoundError:
        return Recalled(ScreenMemory())
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        return Recalled(ScreenMemory(), f"{memory_file()} is not used, and replaced by the next change: {error}")


def remember(memory: ScreenMemory) -> str:
    """Replace the file whole; what went wrong, or nothing."""
    path = memory_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=".screen-")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(memory), indent=2) + b"\n")
        Path(part).replace(path)
    except OSError as error:
        with suppress(OSError):
            Path(part).unlink()
        return f"{path} cannot be written: {error.strerror}"
    return ""
