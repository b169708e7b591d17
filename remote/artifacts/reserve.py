"""Room kept back on the root's disk, so that the last word of a job still lands when the disk is full. Standard library only.

ROOT/reserve holds equal pieces of real blocks. Giving one up frees bytes and an inode at once; a small record needs no more,
so what else fills the disk gets the rest only as slowly as records are written. No lock is needed: a piece is there or not.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from remote.artifacts import atomic

NAME = "reserve"

RESERVE_BYTES = 64 << 20
"""What is kept back; less on a disk of which this would be more than a thirty-second part."""

SIZE_VARIABLE = "ROOST_RESERVE_BYTES"
"""The environment variable that sets another size; 0 for none."""

PIECES = 16
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})

_LARGEST_SHARE = 32
_AMPLE = 4
_BLOCK_BYTES = 4096
_NOISE_BYTES = 1 << 20

_T = TypeVar("_T")


def is_full(error: BaseException) -> bool:
    """Whether the system said that there is no room: no bytes, no inodes, or none left of a quota."""
    return isinstance(error, OSError) and error.errno in FULL_DISK


def keep(root: Path) -> None:
    """Make the reserve of `root` whole where there is ample room; where there is not it stays as it is."""
    home = root / NAME
    with contextlib.suppress(OSError):
        disk = os.statvfs(root)
        size = _piece_bytes(disk)
        missing = [home / name for name in _names() if size and not _is_whole(home / name, size)]
        has_bytes = disk.f_bavail * disk.f_frsize >= _AMPLE * size * len(missing)
        has_inodes = disk.f_files == 0 or disk.f_favail >= 2 * len(missing)
        if missing and has_bytes and has_inodes:
            home.mkdir(mode=0o700, exist_ok=True)
            for piece in missing:
                _fill(piece, size)


def give_up(root: Path, spare: int = 0) -> bool:
    """Free one piece of the reserve; False when none above the last `spare` is left."""
    home = root / NAME
    try:
        left = sorted(set(_names()) & {entry.name for entry in home.iterdir()})
    except OSError:
        return False
    for name in left[spare:]:
        with contextlib.suppress(OSError):
            (home / name).unlink()
            return True
    return False


def insist(root: Path, write: Callable[[], _T], spare: int = 0) -> _T:
    """Do a small write; while the disk is full, give up pieces of the reserve for it.

    Raises the OSError of the full disk when only `spare` pieces are left.
    """
    while True:
        try:
            return write()
        except OSError as error:
            if not is_full(error) or not give_up(root, spare):
                raise


def write_atomic(root: Path, path: Path, data: bytes) -> None:
    """`atomic.write_atomic` at the cost of the reserve of `root`."""
    insist(root, lambda: atomic.write_atomic(path, data))


def write_once(root: Path, path: Path, data: bytes) -> bool:
    """`atomic.write_once` at the cost of the reserve of `root`."""
    return insist(root, lambda: atomic.write_once(path, data))


def _names() -> list[str]:
    return [f"piece-{number:02d}" for number in range(PIECES)]


def _piece_bytes(disk: os.statvfs_result) -> int:
    told = os.environ.get(SIZE_VARIABLE, "")
    wanted = int(told) if told.isdecimal() else RESERVE_BYTES
    share = disk.f_blocks * disk.f_frsize // _LARGEST_SHARE
    return min(wanted, share) // PIECES // _BLOCK_BYTES * _BLOCK_BYTES


def _is_whole(piece: Path, size: int) -> bool:
    try:
        return piece.stat().st_size >= size
    except FileNotFoundError:
        return False


def _fill(piece: Path, size: int) -> None:
    descriptor = os.open(piece, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        if os.fstat(descriptor).st_blocks * 512 < size:  # a file system that compresses or has holes only
            os.lseek(descriptor, 0, os.SEEK_SET)
            for start in range(0, size, _NOISE_BYTES):
                os.write(descriptor, os.urandom(min(_NOISE_BYTES, size - start)))
    except OSError:
        piece.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
