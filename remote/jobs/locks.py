"""Kernel locks that say who is alive. They lie on local storage, never on the root's (maybe networked) volume. Standard library only.

A lock is released by the kernel when its holder dies; losing the file in a restart is correct, for its holder is gone too.
`/run/user/<uid>` and `/dev/shm` are no homes for them where the other is at hand: logging out may empty both.
"""

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BASES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - the directory below is checked for its owner and mode


STORAGE_LOCK = "_storage.change"
"""No job's name. Held by whoever changes what lies on the disks, and for the moment in which a job is put on record."""

INBOX_LOCK = "_inbox.change"
"""The same for whoever takes a request in."""


class NoLockDirectory(OSError):
    """No local directory of this user for locks could be had."""


class LockTimeout(OSError):
    """Another process kept the lock for too long."""


def lock_directory(root: Path) -> Path:
    """The private (0700) local directory for the locks of `root`, made when missing; raises NoLockDirectory."""
    return _private_directory(hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16])


def device_directory() -> Path:
    """The same for the locks of this host's devices, which all roots of this user share.

    `$ROOST_DEVICE_LOCKS` names another one where the devices are others than those of the machine, as on a demo host.
    """
    named = os.environ.get("ROOST_DEVICE_LOCKS")
    if named is None:
        return _private_directory("devices")
    make_private(Path(named))
    return Path(named)


def _private_directory(name: str) -> Path:
    refusals: list[str] = []
    for base in _BASES:
        home = base / f"roost-{os.getuid()}"
        try:
            make_private(home)
            make_private(home / name)
        except OSError as error:
            refusals.append(str(error))
        else:
            return home / name
    raise NoLockDirectory("no private local directory for locks: " + "; ".join(refusals))


def make_private(path: Path) -> None:
    """Make the directory `path` unless it is there; raises PermissionError when it is not this user's alone."""
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_private(path):
        raise PermissionError(f"{path} is not a private directory of this user (remove it)")


def is_private(path: Path) -> bool:
    """Whether `path` is a directory, no link, that nobody but this user can enter."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


def is_held(path: Path) -> bool:
    """Whether a process holds the exclusive lock on `path`; raises OSError where it cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def take(path: Path, timeout_s: float) -> int:
    """Take the exclusive lock on `path` and return its descriptor (closed on exec); raises LockTimeout.

    It retries because `is_held` takes a shared lock for an instant, and because the file may be one that its last holder
    has just removed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _try_exclusive(descriptor) and _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise LockTimeout(f"{path} is held by another process")
        time.sleep(0.01)


@contextmanager
def held(path: Path, timeout_s: float) -> Iterator[None]:
    """The exclusive lock on `path` for as long as this lasts; raises LockTimeout."""
    descriptor = take(path, timeout_s)
    try:
        yield
    finally:
        give_back(path, descriptor)


def give_back(path: Path, descriptor: int) -> None:
    """Release a lock that `take` returned, and remove its file, so that none is left of a job that is over."""
    if _is_at(path, descriptor):
        path.unlink()
    os.close(descriptor)


def _try_exclusive(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))
