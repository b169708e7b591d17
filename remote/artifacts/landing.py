"""A directory on its way to its name: it grows in a `.part` beside the destination and takes the name when it is whole.

`NAME.<identity>.part/` holds `lock`, which the kernel releases when its holder dies, and `tree/`, which is renamed; where the name
is taken over, also `aside`: the other name that the tree has until then, and its inode. What is copied decides the identity, so that
the next copy of the same goes on there and a copy of something else does not.
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from remote.artifacts.atomic import exchange, publish_directory, sync_directory, write_atomic
from remote.artifacts.reserve import is_full
from remote.errors import Conflict, Precondition, RoostError

_IDENTITY_DIGITS = 16
_TREE, _LOCK, _ASIDE = "tree", "lock", "aside"

ASIDE_MARK = ".replaced-"
"""Stands between a name and the time at which something else took that name over."""


class Busy(Conflict):
    """Another process brings the same to the same place; it may be the end of a connection that broke."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.info = msgspec.structs.replace(self.info, retryable=True)


class Landing:
    """The `.part` of a destination, held alone; made by `land`."""

    def __init__(self, destination: Path, part: Path) -> None:
        self.destination = destination
        self.part = part
        self.tree = part / _TREE

    def sweep(self, files: Container[str], directories: Container[str]) -> None:
        """Remove what an earlier copy did not leave there: other names, links, and files that have a second name."""
        for where, below, names in os.walk(self.tree):
            for name in (*below, *names):
                path = Path(where, name)
                relative, status = str(path.relative_to(self.tree)), path.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    if relative not in files or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                        path.unlink()
                elif relative not in directories:
                    shutil.rmtree(path)

    def require_room(self, needed_bytes: int, needed_files: int) -> None:
        """Raise Precondition, with how much is missing, when the rest does not fit the destination's disk."""
        disk = os.statvfs(self.part)
        free = disk.f_bavail * disk.f_frsize
        if needed_bytes > free:
            raise self._full(needed_bytes, free, "bytes") from _no_space()
        if disk.f_files and needed_files > disk.f_favail:
            raise self._full(needed_files, disk.f_favail, "files") from _no_space()

    @contextmanager
    def explaining_full_disks(self, total_bytes: int) -> Iterator[None]:
        """Turn the system's word for a full disk into ours; `total_bytes` is what the whole tree needs."""
        try:
            yield
        except OSError as error:
            if not is_full(error):
                raise
            disk = os.statvfs(self.part)
            there = sum(path.lstat().st_blocks * 512 for path in self.tree.rglob("*"))
            raise self._full(max(total_bytes - there, 1), disk.f_bavail * disk.f_frsize, "bytes") from error

    def publish(self) -> None:
        """Give the tree its name, durably; raises Conflict when the name was taken meanwhile."""
        try:
            publish_directory(self.tree, self.destination)
        except FileExistsError:
            raise Conflict(
                f"{self.destination} appeared while copying; nothing was replaced", hint="look at it, then copy again"
            ) from None
        self.discard()

    def publish_over(self) -> None:
        """Give the tree the name that something else has, which is kept beside it; the name is never free.

        Broken off in between, the tree lies beside it until the next landing of the same, and what was there keeps its name.
        """
        self._drop_stranded()
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        aside = self.destination.with_name(f"{self.destination.name}{ASIDE_MARK}{moment}-{secrets.token_hex(2)}")
        write_atomic(self.part / _ASIDE, f"{aside.name}\n{self.tree.stat().st_ino}\n".encode())
        publish_directory(self.tree, aside)
        exchange(aside, self.destination)
        sync_directory(self.destination.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the part and what is in it."""
        self._drop_stranded()
        shutil.rmtree(self.tree, ignore_errors=True)
        for path in self.part.iterdir():
            if path.name != _LOCK:
                path.unlink()
        (self.part / _LOCK).unlink(missing_ok=True)
        self.part.rmdir()

    def _drop_stranded(self) -> None:
        """Remove a tree that has its other name because its landing broke off: what it was to replace has another inode."""
        with suppress(FileNotFoundError, ValueError):
            name, inode = (self.part / _ASIDE).read_text().splitlines()
            aside = self.destination.with_name(name)
            if aside.lstat().st_ino == int(inode):
                shutil.rmtree(aside)

    def _full(self, needed: int, free: int, unit: str) -> RoostError:
        return Precondition(
            f"no room for {self.destination}: {needed} {unit} are still to be written, {free} are free, "
            f"{max(needed - free, 1)} are missing",
            hint=f"make room and copy again, which goes on where this ended; or remove {self.part}",
        )


def _no_space() -> OSError:
    """What the system would have said: by its cause a job that can wait for room knows a full disk from other preconditions."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_taken(path: Path) -> bool:
    """Whether anything has this name, a dangling link too."""
    return os.path.lexists(path)


@contextmanager
def land(destination: Path, identity: str) -> Iterator[Landing]:
    """The part of `destination` for what `identity` (hexadecimal) names, with what an earlier copy left in it.

    It stays when the block raises an OSError or is killed, for the next one to go on. Raises Busy when another process has it.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(destination, identity)
    descriptor = _lock(part, destination)
    try:
        landing = Landing(destination, part)
        if landing.tree.is_symlink():
            landing.tree.unlink()
        landing.tree.mkdir(exist_ok=True)
        yield landing
    finally:
        os.close(descriptor)


def clear_landed(destination: Path, identity: str) -> None:
    """Remove the part of what has landed, if its landing was killed before it could."""
    if _part_of(destination, identity).is_dir():
        with suppress(Busy), land(destination, identity) as landing:
            landing.discard()


def _part_of(destination: Path, identity: str) -> Path:
    return destination.with_name(f"{destination.name}.{identity[:_IDENTITY_DIGITS]}.part")


def _lock(part: Path, destination: Path) -> int:
    while True:
        part.mkdir(mode=0o700, exist_ok=True)
        if part.is_symlink():
            raise Conflict(f"{part} is a link; nothing is written through it", hint="remove it")
        try:
            descriptor = os.open(part / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # its holder has just finished and removed the part
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise Busy(
                f"another copy is bringing the same to {destination} right now", hint="wait for it, then look there"
            ) from None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)
