"""A terminal that a command believes to sit at: it keeps every byte that the command writes."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import unicodedata

PATIENCE_S = 20.0
_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_POINTER_SHAPE = re.compile(rb"\x1b\]22;[a-z]*\x07")
"""Textual's own, the only one of its sequences that is no CSI."""
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")


class Terminal:
    """`roost` with `arguments` at a terminal of 160 columns and 45 lines."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.bytes = b""
        self._exit_code: int | None = None
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            variables = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
            variables |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
            os.execve(sys.executable, [sys.executable, "-m", "console.cli", *arguments], variables)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 160, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, *wanted: str, since: int = 0) -> int:
        """Read until the texts were written after the byte `since`; the number of bytes by then."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in plain(self.bytes[since:]) for text in wanted):
            assert self._read(deadline), f"{wanted} never came; the terminal shows {plain(self.bytes[since:])[-4000:]}"
        return len(self.bytes)

    def wait(self) -> int:
        """Read to the end; the command's exit code (that of SIGKILL when it does not end)."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self.end()

    def end(self) -> int:
        """End the command if it has not ended; its exit code."""
        if self._exit_code is None:
            os.close(self._descriptor)
            done, status = _wait_for(self._pid)
            if not done:
                os.kill(self._pid, signal.SIGKILL)
                _, status = os.waitpid(self._pid, 0)
            self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def _read(self, deadline: float) -> bool:
        if not select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            block = os.read(self._descriptor, 1 << 16)
        except OSError:  # what Linux says when the other end is closed
            return False
        self.bytes += block
        return bool(block)


def _wait_for(pid: int) -> tuple[int, int]:
    deadline = time.monotonic() + 5.0
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ended


def plain(written: bytes) -> str:
    return _SEQUENCE.sub(b"", _POINTER_SHAPE.sub(b"", written)).decode(errors="replace")


def sequences(written: bytes) -> set[bytes]:
    """The control sequences (CSI) of what was written."""
    return set(_SEQUENCE.findall(written))


def obeyed(written: bytes) -> set[str]:
    """What a terminal obeys or hides in what was written, CSI sequences and pointer shapes aside."""
    text = plain(written)
    return {found for found in text if unicodedata.category(found) in _INVISIBLE and found not in "\r\n\t"}
