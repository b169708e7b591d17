"""Standard output and error that a full disk cannot break: what finds no room is lost and counted, whoever prints goes on.

Standard library only: it also runs inside the engine, whose Python knows nothing of the release.
"""

import errno
import io
import os
import sys

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class SteadyLog(io.RawIOBase):
    """Writes to a descriptor; the first write that finds room again says how much was lost before it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lost = 0

    def fileno(self) -> int:
        """The descriptor, for whoever writes past Python."""
        return self._descriptor

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write all of `data` or lose the rest of it; raises OSError for anything but a full disk."""
        block = memoryview(data).cast("B")
        try:
            if self._lost:
                self._write_all(memoryview(b"\n[%d bytes of this log found no room on the disk]\n" % self._lost))
                self._lost = 0
            self._write_all(block)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            self._lost += block.nbytes
        return block.nbytes

    def _write_all(self, block: memoryview) -> None:
        while block:
            block = block[os.write(self._descriptor, block) :]


def install() -> None:
    """Let this process print through it, in UTF-8 whatever the locale, with nothing held back."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        steady = io.TextIOWrapper(
            SteadyLog(stream.fileno()),  # pyright: ignore[reportArgumentType] - raw, as `python -u` does it
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        )
        setattr(sys, name, steady)
