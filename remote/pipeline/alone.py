"""One writer at a time in a directory."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remote.errors import Conflict
from remote.jobs import locks

_LOCK_TIMEOUT_S = 1.0


@contextmanager
def alone_in(directory: Path, root: Path, *, what: str) -> Iterator[None]:
    """No other `what` writes to the directory meanwhile; raises Conflict."""
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:32]
    try:
        lock = locks.take(locks.lock_directory(root) / f"{what}-{name}.lock", _LOCK_TIMEOUT_S)
    except locks.LockTimeout as error:
        raise Conflict(
            f"another {what} is at work in {directory}",
            hint=f"Wait for it, stop it, or give this {what} a directory of its own.",
            next_command="roost jobs",
        ) from error
    try:
        yield
    finally:
        os.close(lock)
