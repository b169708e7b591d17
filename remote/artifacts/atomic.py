"""Writes that a reader sees whole or not at all. Standard library only: the supervisor of a job uses them too."""

import ctypes
import errno
import os
import secrets
from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_SYNC_FILE_RANGE_WRITE = 2
_libc = ctypes.CDLL(None, use_errno=True)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the bytes of `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve_bytes(descriptor: int, size: int) -> bool:
    """Give an open file `size` bytes of disk, so that writing them finds room; raises OSError when there is none.

    False on a file system that cannot (fallocate(2)): the C library's substitute would write every block.
    """
    if not hasattr(_libc, "fallocate64"):
        return False
    while _libc.fallocate64(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)) != 0:
        code = ctypes.get_errno()
        if code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


def start_writing_back(descriptor: int, offset: int, size: int) -> None:
    """Let the disk begin on bytes that were written, without waiting for it; otherwise it idles until they are synced."""
    if hasattr(_libc, "sync_file_range"):
        _libc.sync_file_range(descriptor, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: a crash leaves the old content or the new, and a full disk leaves the old."""
    temporary = _write_temporary(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    sync_directory(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data` unless it exists; True for the one writer that created it (link(2))."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_directory(path.parent)
    return True


def rename_without_replacing(source: Path, destination: Path) -> None:
    """Rename, but never over anything, not even an empty directory (renameat2); raises FileExistsError.

    A file system or C library without RENAME_NOREPLACE gets a plain rename after a check for existence.
    """
    if not hasattr(_libc, "renameat2"):
        _rename_after_a_look(source, destination)
        return
    result = _libc.renameat2(
        _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(destination), ctypes.c_uint(_RENAME_NOREPLACE)
    )
    if result == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(source), None, str(destination))
    _rename_after_a_look(source, destination)


def _rename_after_a_look(source: Path, destination: Path) -> None:
    if destination.exists() or destination.is_symlink():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(destination))
    source.rename(destination)


def exchange(one: Path, other: Path) -> None:
    """Let two names change places, so that neither is ever without anything (renameat2).

    A file system or C library without RENAME_EXCHANGE gets three renames.
    """
    if hasattr(_libc, "renameat2"):
        names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
        if _libc.renameat2(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), str(one), None, str(other))
    between = other.with_name(f".{other.name}.{secrets.token_hex(4)}.exchanged")
    other.rename(between)
    one.rename(other)
    between.rename(one)


def publish_directory(part: Path, final: Path) -> None:
    """Give a finished directory its final name, durably; raises FileExistsError when the name is taken."""
    for path in part.rglob("*"):
        if path.is_file():
            sync_file(path)
        elif path.is_dir():
            sync_directory(path)
    sync_directory(part)
    rename_without_replacing(part, final)
    sync_directory(final.parent)
