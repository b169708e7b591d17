"""Where the values of secrets lie: a 0600 file each in a private directory in memory, which a restart empties. Standard library only.

A host without a file system in memory has them below the root. A value that was replaced stays beside its successor, to be
covered in what jobs still write of it. The work's process reads the values itself, right before it executes.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from remote.jobs import locks
from remote.redaction import SECRET_NAME

MEMORY = Path("/dev/shm")  # noqa: S108 - the directories below are checked for their owner and mode
_OF_NOTIFICATIONS = "ROOST_WEBHOOK_"
_MEMORY_KINDS = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mounts")


def directory_in_memory(root: Path) -> Path:
    """Where the secrets of `root` lie in memory."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return MEMORY / f"roost-{os.getuid()}" / f"secrets-{name}"


def directory_on_disk(root: Path) -> Path:
    """Where they lie on a host without a file system in memory."""
    return root / "secrets"


def read_values(root: Path) -> dict[str, str]:
    """The secrets by name; a directory that is not private to this user is not believed. Raises OSError."""
    return {path.name: value for path, value in _read_all(root) if SECRET_NAME.match(path.name)}


def read_values_for_jobs(root: Path) -> dict[str, str]:
    """The secrets that jobs find in their environment: all but those that notifications are posted with. Raises OSError."""
    return {name: value for name, value in read_values(root).items() if not name.startswith(_OF_NOTIFICATIONS)}


def read_every_value(root: Path) -> set[str]:
    """All values that must be covered: the present ones and those that they replaced. Raises OSError."""
    return {value for _, value in _read_all(root)}


def fingerprint(root: Path) -> frozenset[tuple[str, int]]:
    """Changes whenever a value does."""
    return frozenset((entry.path, entry.inode()) for entry in _entries(root))


def keep(root: Path, name: str, value: str) -> Path:
    """Store a value and return its directory; the one that it replaces is set aside. Raises OSError."""
    memory, disk = directory_in_memory(root), directory_on_disk(root)
    if has_memory():
        with contextlib.suppress(OSError):  # it may be full
            locks.make_private(memory.parent)
            _keep(memory, name, value)
            (disk / name).unlink(missing_ok=True)
            return memory
    _keep(disk, name, value)
    return disk


def forget(root: Path, name: str) -> None:
    """Remove a secret and the values that it replaced. Raises OSError."""
    for entry in list(_entries(root)):
        if _name_of(entry.name) == name:
            Path(entry.path).unlink(missing_ok=True)
    for directory in (directory_in_memory(root), directory_on_disk(root)):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _keep(directory: Path, name: str, value: str) -> None:
    locks.make_private(directory)
    path, part = directory / name, directory / f".{secrets.token_hex(4)}"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and path.read_text(encoding="ascii") != value:
            path.replace(directory / f"{name}.{secrets.token_hex(4)}")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def has_memory() -> bool:
    """Whether this host has a file system in memory that every user may write to."""
    mounts = (line.split() for line in _MOUNTS.read_text().splitlines())
    return any(fields[1] == str(MEMORY) and fields[2] in _MEMORY_KINDS for fields in mounts)


def _name_of(file_name: str) -> str:
    return file_name.partition(".")[0]


def _entries(root: Path) -> "Iterator[os.DirEntry[str]]":
    memory = directory_in_memory(root)
    for directory in (directory_on_disk(root), *([memory] if locks.is_private(memory.parent) else [])):
        if locks.is_private(directory):
            with os.scandir(directory) as entries:
                yield from (entry for entry in entries if SECRET_NAME.match(_name_of(entry.name)))


def _read_all(root: Path) -> Iterator[tuple[Path, str]]:
    for entry in _entries(root):
        with contextlib.suppress(FileNotFoundError):
            path = Path(entry.path)
            yield path, path.read_text(encoding="ascii")
