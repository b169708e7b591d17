"""Keeping a log below its limit while the work goes on writing it, with offsets that stay true. Standard library only.

The work writes its log itself, so there is nobody who could rotate it. The kernel takes the oldest blocks out of the file
instead (fallocate with FALLOC_FL_PUNCH_HOLE): its size and every offset stay as they are. `log_start` beside the log has
the first offset that can still be read.
"""

import ctypes
import errno
import os
from pathlib import Path

from remote.artifacts import reserve

LOG_NAME = "out.log"
START_NAME = "log_start"

LOG_LIMIT_BYTES = 1 << 30
"""A log that has grown to this much on disk loses its older half."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK_BYTES = 4096
_SECTOR_BYTES = 512
_LINE_BYTES = 64 << 10
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_libc = ctypes.CDLL(None, use_errno=True)


def read_start(directory: Path) -> int:
    """The first offset of the job's log that can still be read."""
    try:
        return int((directory / START_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return 0


class LogBound:
    """The bound of one job's log: above `limit_bytes` on disk the older half goes."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self.is_possible = True
        """False once the file system has said that it cannot punch holes; the log is unbounded then."""

    def trim(self) -> None:
        """Cut the head off when the log has outgrown its limit; raises OSError where the disk does not answer."""
        try:
            descriptor = os.open(self._directory / LOG_NAME, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            status = os.fstat(descriptor)
            if self.is_possible and status.st_blocks * _SECTOR_BYTES > self._limit_bytes:
                self._cut(descriptor, status.st_size - self._limit_bytes // 2)
        finally:
            os.close(descriptor)

    def _cut(self, descriptor: int, wanted: int) -> None:
        hole_end = wanted // _BLOCK_BYTES * _BLOCK_BYTES
        if hole_end <= 0:
            return
        # The start first: whoever reads meanwhile finds bytes that nobody promised, never a promise without bytes.
        start = hole_end + _first_line_end(os.pread(descriptor, _LINE_BYTES, hole_end))
        before = read_start(self._directory)
        self._write_start(start)
        code = punch(descriptor, hole_end)
        if code in _UNSUPPORTED:
            self.is_possible = False
            self._write_start(before)
        elif code:
            raise OSError(code, os.strerror(code), str(self._directory / LOG_NAME))

    def _write_start(self, offset: int) -> None:
        reserve.write_atomic(self._directory.parents[1], self._directory / START_NAME, b"%d" % offset)


def punch(descriptor: int, end: int) -> int:
    """Give the blocks of `[0, end)` back to the file system; the error number, 0 when it is done."""
    mode = _KEEP_SIZE | _PUNCH_HOLE
    done = _libc.fallocate(descriptor, mode, ctypes.c_longlong(0), ctypes.c_longlong(end))
    return 0 if done == 0 else ctypes.get_errno()


def _first_line_end(block: bytes) -> int:
    """Where the first whole line begins, so that a log does not start in the middle of a word."""
    return block.find(b"\n") + 1
