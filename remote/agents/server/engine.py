"""The engine as a process group: started, watched, and stopped so that nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from remote.agents.server.contract import EngineCommand, Question
from remote.agents.server.http import ask
from remote.errors import Precondition, WorkFailed

_DRAIN_S = 15.0
_KILL_S = 10.0
_POLL_S = 0.2
_TAIL_BYTES = 64 << 10


class Engine:
    """A running engine; its output goes where this process's goes, into the job's log."""

    def __init__(self, command: EngineCommand, url: str, log: Path, *, drop: Question | None) -> None:
        self.url = url
        self._log = log
        self._drop = drop
        self._log_start = _size(log)
        sys.stdout.flush()
        try:
            # A group of its own, so that all of it can be signalled without this process; the session stays the job's.
            self._process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.environment},
                stdin=subprocess.DEVNULL,
                preexec_fn=os.setpgrp,  # noqa: PLW1509 - no threads yet; `process_group=0` needs Python 3.11
            )
        except FileNotFoundError:
            raise Precondition(
                f"there is no Python at {command.argv[0]}", hint=f"correct {command.section}.python in the run file"
            ) from None
        self.pid = self._process.pid
        self._seen: dict[int, psutil.Process] = {}

    def exit_code(self) -> int | None:
        """How it ended (negative: the signal), or None while it runs."""
        return self._process.poll()

    def log_lines(self, offset: int) -> tuple[bytes, int]:
        """The whole lines that were logged since `offset` bytes after the launch, and the new offset."""
        text = self._log_from(offset)
        whole = text[: text.rfind(b"\n") + 1]
        return whole, offset + len(whole)

    def log_tail(self, offset: int) -> bytes:
        """The last 64 KiB that were logged since `offset` bytes after the launch."""
        return self._log_from(max(offset, _size(self._log) - self._log_start - _TAIL_BYTES))

    def _log_from(self, offset: int) -> bytes:
        try:
            with self._log.open("rb") as file:
                file.seek(self._log_start + offset)
                return file.read()
        except FileNotFoundError:
            return b""

    def note_descendants(self) -> None:
        """Remember the processes that belong to it now: they may outlive their parent and their group."""
        for process in (self.pid, *self._seen):
            try:
                found = psutil.Process(process).children(recursive=True)
            except psutil.Error:
                continue
            self._seen.update({child.pid: child for child in found})

    def stop(self) -> None:
        """End it: drop its requests, ask, wait, kill; raises WorkFailed when something of it survives."""
        self.note_descendants()
        if self._process.poll() is None:
            if self._drop is not None:
                ask(self.url, self._drop)
            self._process.send_signal(signal.SIGTERM)
            self._wait_for_end(_DRAIN_S)
        self._kill_group()
        survivors = self._kill_descendants()
        if survivors:
            raise WorkFailed(
                f"processes of the engine survived SIGKILL: {survivors}",
                hint="they hang in the kernel; the host must be restarted to free what they hold",
            )

    def _wait_for_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            self.note_descendants()
            time.sleep(_POLL_S)

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._wait_for_end(_KILL_S)

    def _kill_descendants(self) -> list[int]:
        # psutil compares start times, so a process that took over a number is never signalled.
        alive = [process for process in self._seen.values() if _is_alive(process)]
        for process in alive:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        _, survivors = psutil.wait_procs(alive, timeout=_KILL_S)
        return [process.pid for process in survivors if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
