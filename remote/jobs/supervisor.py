"""One process per job: it starts the work, holds the job's lock for life, carries out stops and records the exit.

Run by path, `python -I supervisor.py JOB_DIRECTORY`, with nothing but the standard library, so that a broken environment
of the work cannot break its supervisor. It answers one line on its standard output (`started`, or what went wrong) and
then lets go of the caller. The work cannot exec before its start is on disk: it waits on a pipe, and reads the end of
the file when the supervisor dies first.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":  # isolated mode knows no path of ours
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remote.artifacts import atomic
from remote.jobs import locks, outcome, plain_json, process

HEARTBEAT_S = 2.0
TICK_S = 0.2
LOCK_TIMEOUT_S = 3.0
KILL_TIMEOUT_S = 10.0
STRAY_GRACE_S = 2.0
STARTED = b"started\n"
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """The life of one job, from its launch record to its exit record."""

    def __init__(self, directory: Path, launch: dict[str, Any]) -> None:
        self.directory = directory
        self.launch = launch
        self.child = 0
        self.pidfd: int | None = None
        self.stop: dict[str, Any] | None = None
        self.kill_at = float("inf")
        self.give_up_at = float("inf")
        self.revision = 0
        self.last_beat = float("-inf")
        self.told_to_end = False

    def start(self) -> None:
        """Fork the work, put its start on record, release it; raises OSError when it cannot be executed."""
        _become_subreaper()
        signal.signal(signal.SIGTERM, self._on_sigterm)
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        self._beat()
        gate_read, gate_write = os.pipe()
        fault_read, fault_write = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(gate_write)
            _become_work(self.directory, self.launch, gate_read, fault_write)
        os.close(gate_read)
        os.close(fault_write)
        self._record_start()
        os.write(gate_write, b"!")
        os.close(gate_write)
        with contextlib.suppress(OSError):
            self.pidfd = os.pidfd_open(self.child)
        with os.fdopen(fault_read, "rb") as faults:
            fault = faults.read().decode()
        if fault:
            self._record_failed_exec(fault)

    def run(self) -> None:
        """Watch over the work until it and all that it started are gone, then record the exit."""
        self._save("running")
        while os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._breathe()
            self._carry_out_stop()
            self._wait()
        self._sweep_strays()
        self._stop_children()
        _, status = os.waitpid(self.child, 0)
        _reap()
        self._record_exit(status)

    def _on_sigterm(self, *_: object) -> None:
        self.told_to_end = True

    def _breathe(self) -> None:
        self._beat()
        _reap(spare=self.child)

    def _beat(self) -> None:
        if time.monotonic() - self.last_beat < HEARTBEAT_S:
            return
        self.last_beat = time.monotonic()
        for path in (self.directory / "heartbeat", Path(self.launch["lock"])):
            with contextlib.suppress(OSError):
                path.touch()

    def _wait(self) -> None:
        watched = [] if self.pidfd is None else [self.pidfd]
        select.select(watched, [], [], TICK_S)

    def _record_start(self) -> None:
        record = {
            "v": 1,
            "pid": self.child,
            "start_time": process.start_time(self.child),
            "supervisor_pid": os.getpid(),
            "supervisor_start_time": process.start_time(os.getpid()),
            "incarnation": process.incarnation(),
            "cookie": self.launch["cookie"],
            "started_at": time.time(),
        }
        atomic.write_once(self.directory / "started.json", plain_json.encode(record))

    def _record_failed_exec(self, fault: str) -> None:
        command = self.launch["argv"][0]
        failure = {"type": "error_info", "code": "failed", "message": f"could not execute {command}: {fault}"}
        atomic.write_once(self.directory / "failure.json", plain_json.encode(failure))

    def _carry_out_stop(self) -> None:
        now = time.monotonic()
        if self.stop is None:
            self.stop = self._read_stop()
            if self.stop is not None:
                self._save("stopping")
                process.signal_group(self.child, signal.SIGTERM)
                self.kill_at = now + float(self.launch["stop_grace_s"])
        elif now >= self.kill_at:
            process.signal_group(self.child, signal.SIGKILL)
            self.kill_at, self.give_up_at = float("inf"), now + KILL_TIMEOUT_S
        elif now >= self.give_up_at:
            self.give_up_at = float("inf")
            self._save("unkillable", pids=[member.pid for member in self._members()])

    def _read_stop(self) -> dict[str, Any] | None:
        path = self.directory / "stop.json"
        try:
            asked = plain_json.read_json(path)
        except ValueError as error:
            asked = {"requested_by": "unknown", "reason": f"{path} cannot be read: {error}"}
        if asked is None and self.told_to_end:
            reason = "the supervisor received SIGTERM"
            asked = {"v": 1, "requested_by": "host", "requested_at": time.time(), "reason": reason}
            with contextlib.suppress(OSError):
                atomic.write_once(path, plain_json.encode(asked))
        return asked

    def _members(self) -> list[process.Process]:
        return process.find_members(self.launch["cookie"], self.child, subreaper=os.getpid())

    def _sweep_strays(self) -> None:
        survivors = process.sweep(self._members, gentle_s=STRAY_GRACE_S, hard_s=KILL_TIMEOUT_S, meanwhile=self._breathe)
        if survivors:
            self._save("unkillable", pids=[survivor.pid for survivor in survivors])
        while self._members():
            self._breathe()
            time.sleep(TICK_S)

    def _stop_children(self) -> None:
        """A run's jobs do not outlive it, however it ended; its runner had its chance to stop them in order."""
        me = self.directory.name
        for launch_path in self.directory.parent.glob("*/launch.json"):
            child = launch_path.parent
            if (child / "exit.json").exists() or not _is_child(launch_path, me):
                continue
            stop = {"v": 1, "requested_by": "host", "requested_at": time.time(), "reason": "its run has ended"}
            with contextlib.suppress(OSError):
                atomic.write_once(child / "stop.json", plain_json.encode(stop))

    def _save(self, phase: str, **more: object) -> None:
        self.revision += 1
        state = {"v": 1, "rev": self.revision, "phase": phase, "since": time.time(), **more}
        try:
            atomic.write_atomic(self.directory / "state.json", plain_json.encode(state))
        except OSError as error:
            _complain(f"state.json: {error}")

    def _record_exit(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        exit_code, killed_by = (code, None) if code >= 0 else (None, -code)
        stop = self.stop or self._read_stop()
        name, reason = outcome.judge(self.directory, exit_code=exit_code, killed_by=killed_by, stop=stop)
        record = {
            "v": 1,
            "exit_code": exit_code,
            "signal": killed_by,
            "ended_at": time.time(),
            "outcome": name,
            "reason": reason,
        }
        while not _try_to_write(self.directory / "exit.json", record):
            self._beat()
            time.sleep(HEARTBEAT_S)


def _become_work(directory: Path, launch: dict[str, Any], gate: int, fault: int) -> NoReturn:
    """In the forked child: own session, the job's log as output, wait for the gate, exec."""
    try:
        os.setsid()
        os.closerange(3, min(gate, fault))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if os.read(gate, 1) != b"!":
            os._exit(125)
        log = os.open(directory / "out.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, descriptor)
        os.chdir(launch["cwd"])
        environment = {name: value for name, value in os.environ.items() if name != process.SUPERVISOR_VARIABLE}
        os.execvpe(launch["argv"][0], launch["argv"], environment | launch["environment"])  # noqa: S606 - that is the job
    except OSError as error:
        os.write(fault, f"{error.strerror} ({error.filename})".encode())
    finally:
        os._exit(127)


def _try_to_write(path: Path, record: dict[str, Any]) -> bool:
    """Whether `record` is on disk; on a full one the caller keeps the lock and tries again, so that no job is taken for lost."""
    try:
        atomic.write_once(path, plain_json.encode(record))
    except OSError as error:
        _complain(f"{path}: {error}")
        return False
    return True


def _is_child(launch_path: Path, run_id: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        launch = plain_json.read_json(launch_path)
        return launch is not None and launch.get("run_id") == run_id
    return False


def _become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _complain("this kernel has no subreaper: strays are found by their cookie alone")


def _reap(spare: int = 0) -> None:
    """Collect ended adopted processes, all but `spare`."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in (0, spare):
                return
            os.waitpid(ended.si_pid, 0)


def _complain(sentence: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {sentence}\n")
    sys.stderr.flush()


def _answer(text: bytes) -> None:
    """Tell the caller and let go of it, so that it may die without a trace here."""
    with contextlib.suppress(OSError):
        os.write(1, text)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _detach() -> None:
    """Leave the caller's session and family: a new session in a process whose parent is gone."""
    if os.fork() != 0:
        os._exit(0)
    os.setsid()


def main(directory: Path) -> int:
    """Supervise the job in `directory`; 0 when its exit is on record."""
    _detach()
    try:
        launch = plain_json.read_json(directory / "launch.json")
        if launch is None:
            raise FileNotFoundError(f"{directory} has no launch.json")
        lock = locks.take(Path(launch["lock"]), LOCK_TIMEOUT_S)
        if (directory / "started.json").exists() or (directory / "exit.json").exists():
            _answer(STARTED)
            return 0
        supervisor = Supervisor(directory, launch)
        supervisor.start()
    except (OSError, ValueError, KeyError) as error:
        _complain(f"could not start: {error}")
        _answer(f"{type(error).__name__}: {error}\n".encode())
        return 1
    _answer(STARTED)
    supervisor.run()
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
