"""The screen in a terminal of its own: whatever ends it, the terminal is as it was before."""

import os
import pty
import signal
import sys
from pathlib import Path

RECORDING = Path(__file__).parents[1] / "recordings/embedded_run.jsonl"
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


def test_who_is_told_to_end_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "100", "LINES": "30"}
        os.execv(sys.executable, [sys.executable, "-m", "console.cli", "replay", str(RECORDING)])
    written = b""
    while b"Overview" not in written:
        written += os.read(terminal, 1 << 16)
    os.kill(pid, signal.SIGTERM)
    try:
        while block := os.read(terminal, 1 << 16):
            written += block
    except OSError:  # how a pseudo-terminal says that nobody is at its other end any more
        pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGTERM
    assert written.rindex(LEFT) > written.rindex(ENTERED)
