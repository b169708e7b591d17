"""The work's process as its supervisor holds it: forked by this one, or left behind by one that died. Standard library only."""

import contextlib
import ctypes
import os
import select
import signal
from pathlib import Path
from typing import Any, NoReturn

from remote.jobs import process, vault
from remote.jobs.log_bound import LOG_NAME

_PR_SET_CHILD_SUBREAPER = 36


class ForkedWork:
    """Our own child: it waits at a gate, so that nothing runs before its start is on record."""

    def __init__(self, directory: Path, launch: dict[str, Any]) -> None:
        gate_read, self._gate = os.pipe()
        self._fault, fault_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            _become_work(directory, launch, gate_read, fault_write)
        os.close(gate_read)
        os.close(fault_write)
        self.start_time = process.start_time(self.pid)
        self._pidfd = _open_pidfd(self.pid, self.start_time)

    def release(self) -> str:
        """Open the gate and wait for the exec; why it failed, empty when it did not."""
        os.write(self._gate, b"!")
        os.close(self._gate)
        with os.fdopen(self._fault, "rb") as faults:
            return faults.read().decode()

    def has_ended(self) -> bool:
        """Whether it has exited; it stays a zombie until it is collected, so its pid stays its own."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, seconds: float) -> None:
        """Wait for its end, or for so long."""
        _wait_for(self._pidfd, seconds)

    def collect(self) -> int:
        """Its exit code, negative for the signal that killed it; once it has ended."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


class AdoptedWork:
    """The child of a supervisor that died: it can be watched and ended, but its exit code goes to its new parent."""

    def __init__(self, started: dict[str, Any]) -> None:
        self.pid = int(started["pid"])
        self.start_time = int(started["start_time"])
        self._is_here = started["incarnation"] == process.incarnation()
        self.was_alive = not self.has_ended()
        self._pidfd = _open_pidfd(self.pid, self.start_time) if self.was_alive else None

    def has_ended(self) -> bool:
        """Whether that very process is gone."""
        return not (self._is_here and process.is_alive(self.pid, self.start_time))

    def wait(self, seconds: float) -> None:
        """Wait for its end, or for so long."""
        _wait_for(self._pidfd, seconds)

    def collect(self) -> None:
        """Nobody but its parent learns its exit code."""


Work = ForkedWork | AdoptedWork


def _open_pidfd(pid: int, started: int) -> int | None:
    """A descriptor that becomes readable when that very process ends; None where there is none to be had."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if process.start_time(pid) == started:
        return descriptor
    os.close(descriptor)
    return None


def _wait_for(pidfd: int | None, seconds: float) -> None:
    select.select([] if pidfd is None else [pidfd], [], [], seconds)


def _become_work(directory: Path, launch: dict[str, Any], gate: int, fault: int) -> NoReturn:
    """In the forked child: own session, the job's log as output, wait for the gate, exec."""
    try:
        os.setsid()
        os.closerange(3, min(gate, fault))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if os.read(gate, 1) != b"!":
            os._exit(125)
        log = os.open(directory / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, descriptor)
        os.chdir(launch["cwd"])
        os.execvpe(launch["argv"][0], launch["argv"], _environment(launch))  # noqa: S606 - that is the job
    except OSError as error:
        os.write(fault, f"{error.strerror} ({error.filename})".encode())
    finally:
        os._exit(127)


def _environment(launch: dict[str, Any]) -> dict[str, str]:
    """What the work finds: the supervisor's own environment, over it the host's secrets for jobs, over both the launch record."""
    inherited = {name: value for name, value in os.environ.items() if name != process.SUPERVISOR_VARIABLE}
    planned: dict[str, str] = launch["environment"]
    root = planned.get("ROOST_ROOT")
    return inherited | ({} if root is None else vault.read_values_for_jobs(Path(root))) | planned


def become_subreaper() -> bool:
    """Inherit what the work's processes leave behind; False on a kernel that does not offer it."""
    return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def reap(spare: int = 0) -> None:
    """Collect ended adopted processes, all but `spare`."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in (0, spare):
                return
            os.waitpid(ended.si_pid, 0)
