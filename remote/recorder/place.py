"""Where the recorder of a root keeps its readings, and the lock that makes it the only one."""

import contextlib
import hashlib
import os
from pathlib import Path

from remote.jobs import locks, vault
from remote.telemetry.live import LiveReadings

LOCK = "recorder.singleton"


def ring_directory(root: Path) -> Path:
    """The recorded readings of `root`."""
    return root / "telemetry"


def singleton_lock(root: Path) -> Path:
    """Held by the recorder of `root` for as long as it is at work."""
    return locks.lock_directory(root) / LOCK


def live_readings(root: Path) -> LiveReadings:
    """The newest reading of `root`: beside the locks, or in memory when that disk is full from the beginning."""
    beside_locks = locks.lock_directory(root) / "live"
    locks.make_private(beside_locks)
    directories = [beside_locks]
    if vault.has_memory():
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
        in_memory = vault.MEMORY / f"roost-{os.getuid()}" / f"telemetry-{name}"
        with contextlib.suppress(OSError):  # not this user's alone: there is the other place
            locks.make_private(in_memory.parent)
            locks.make_private(in_memory)
            directories.append(in_memory)
    return LiveReadings(directories)
