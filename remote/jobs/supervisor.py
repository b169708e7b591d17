"""One process per job: it starts the work, holds the job's lock for life, carries out stops and records the exit.

Run by path, `python -I supervisor.py JOB_DIRECTORY`, with nothing but the standard library, so that a broken environment
of the work cannot break its supervisor. It answers one line on its standard output (`started`, or what went wrong) and
then lets go of the caller. The work cannot exec before its start is on disk: it waits on a pipe, and reads the end of
the file when the supervisor dies first.

Run on a job that was started before and has no supervisor any more, it adopts the work: it watches and stops it as the
first one did, ends what is left of it, and records what its outputs prove.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # isolated mode knows no path of ours
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remote.artifacts import reserve
from remote.jobs import gpu_locks, locks, outcome, plain_json, process
from remote.jobs.log_bound import LOG_LIMIT_BYTES, LogBound
from remote.jobs.oom import count_oom_kills
from remote.jobs.outcome import Outcome
from remote.jobs.work import AdoptedWork, ForkedWork, Work, become_subreaper, reap

HEARTBEAT_S = 2.0
TICK_S = 0.2
LOCK_TIMEOUT_S = 3.0
KILL_TIMEOUT_S = 10.0
STRAY_GRACE_S = 2.0
STARTED = b"started\n"


class Supervisor:
    """The life of one job, from its launch record, or from where another supervisor left it, to its exit record."""

    def __init__(self, directory: Path, launch: dict[str, Any], lock: int) -> None:
        self.directory = directory
        self.root = directory.parents[1]
        self.launch = launch
        self.lock = lock
        self.log_bound = LogBound(directory, int(launch.get("log_limit_bytes", LOG_LIMIT_BYTES)))
        self.stop: dict[str, Any] | None = None
        self.kill_at = float("inf")
        self.give_up_at = float("inf")
        self.revision = 0
        self.last_beat = float("-inf")
        self.is_beating = True
        self.told_to_end = False
        self.gpu_locks: list[int] = []
        self.oom_kills_before = count_oom_kills()
        self.work: Work

    def start(self) -> None:
        """Lock the devices, fork the work, put its start on record, release it; raises OSError where that cannot be."""
        self.gpu_locks = gpu_locks.take_gpus(self.directory, self.launch, LOCK_TIMEOUT_S)
        self._take_charge()
        self.work = work = ForkedWork(self.directory, self.launch)
        self._record_start(work)
        if fault := work.release():
            self._record_failed_exec(fault)

    def adopt(self, started: dict[str, Any]) -> None:
        """Take over the work of a supervisor that died, or what is left of it."""
        self.work = work = AdoptedWork(started)
        self.is_beating = work.was_alive
        state = plain_json.read_json(self.directory / "state.json")
        self.revision = 0 if state is None else int(state["rev"])
        self._take_charge()
        if work.was_alive:
            self._take_gpus_again()

    def run(self) -> None:
        """Watch over the work until it and all that it started are gone, then record the exit."""
        if not self.work.has_ended():
            self._save("running")
        while not self.work.has_ended():
            self._breathe()
            self._carry_out_stop()
            self.work.wait(TICK_S)
        self._sweep_strays()
        self._stop_children()
        exit_code = self.work.collect()
        reap()
        gpu_locks.release(self.gpu_locks)
        self._record_exit(exit_code)

    def _take_gpus_again(self) -> None:
        """Living work keeps its devices from others by itself: without their locks it is watched all the same."""
        try:
            self.gpu_locks = gpu_locks.take_gpus(self.directory, self.launch, LOCK_TIMEOUT_S)
        except OSError as error:
            _complain(f"the work goes on without the locks of its GPUs: {error}")

    def _take_charge(self) -> None:
        if not become_subreaper():
            _complain("this kernel has no subreaper: strays are found by their cookie alone")
        signal.signal(signal.SIGTERM, self._on_sigterm)
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        self._beat()

    def _on_sigterm(self, *_: object) -> None:
        self.told_to_end = True

    def _breathe(self) -> None:
        self._beat()
        reap(spare=self.work.pid)

    def _beat(self) -> None:
        if not self.is_beating or time.monotonic() - self.last_beat < HEARTBEAT_S:
            return
        self.last_beat = time.monotonic()
        with contextlib.suppress(OSError):
            reserve.insist(self.root, (self.directory / "heartbeat").touch)
        with contextlib.suppress(OSError):
            # Its own file, whatever is at the path by now: cleaners of /tmp spare what is young.
            os.utime(self.lock)
        self._bound_log()

    def _bound_log(self) -> None:
        was_possible = self.log_bound.is_possible
        try:
            self.log_bound.trim()
        except OSError as error:
            _complain(f"the log could not be cut: {error}")
        if was_possible and not self.log_bound.is_possible:
            _complain("this file system cannot punch holes: the log grows without a bound")

    def _record_start(self, work: ForkedWork) -> None:
        record = {
            "v": 1,
            "pid": work.pid,
            "start_time": work.start_time,
            "supervisor_pid": os.getpid(),
            "supervisor_start_time": process.start_time(os.getpid()),
            "incarnation": process.incarnation(),
            "cookie": self.launch["cookie"],
            "started_at": time.time(),
        }
        reserve.write_once(self.root, self.directory / "started.json", plain_json.encode(record))

    def _record_failed_exec(self, fault: str) -> None:
        command = self.launch["argv"][0]
        failure = {"type": "error_info", "code": "failed", "message": f"could not execute {command}: {fault}"}
        reserve.write_once(self.root, self.directory / "failure.json", plain_json.encode(failure))

    def _carry_out_stop(self) -> None:
        now = time.monotonic()
        if self.stop is None:
            self.stop = self._read_stop()
            if self.stop is not None:
                self._save("stopping")
                process.signal_group(self.work.pid, signal.SIGTERM)
                process.signal_group(self.work.pid, signal.SIGCONT)  # who is suspended would hear of it only then
                self.kill_at = now + float(self.launch["stop_grace_s"])
        elif now >= self.kill_at:
            process.signal_group(self.work.pid, signal.SIGKILL)
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
                reserve.write_once(self.root, path, plain_json.encode(asked))
        return asked

    def _members(self) -> list[process.Process]:
        work = self.work
        return process.find_members(self.launch["cookie"], work.pid, work.start_time, subreaper=os.getpid())

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
                reserve.write_once(self.root, child / "stop.json", plain_json.encode(stop))

    def _save(self, phase: str, **more: object) -> None:
        self.revision += 1
        me = process.start_time(os.getpid())
        identity = {"supervisor_pid": os.getpid(), "supervisor_start_time": me}
        state = {"v": 1, "rev": self.revision, "phase": phase, "since": time.time(), **identity, **more}
        try:
            reserve.write_atomic(self.root, self.directory / "state.json", plain_json.encode(state))
        except OSError as error:
            _complain(f"state.json: {error}")

    def _judge(self, code: int | None) -> Outcome | None:
        stop = self.stop or self._read_stop()
        match self.work:
            case ForkedWork():
                exit_code, killed_by = _exit_code(code), _killing_signal(code)
                oom_kills = (count_oom_kills() or 0) - (self.oom_kills_before or 0)
                return outcome.judge(
                    self.directory, exit_code=exit_code, killed_by=killed_by, stop=stop, oom_kills=oom_kills
                )
            case AdoptedWork(was_alive=watched):
                return outcome.judge_unseen(self.directory, stop=stop, watched=watched)

    def _record_exit(self, code: int | None) -> None:
        """The outcome where there is proof of one; a job without it stays lost, and that it was looked after is on record."""
        found = self._judge(code)
        if found is None:
            self._insist("lost.json", {"v": 1, "incarnation": process.incarnation(), "swept_at": time.time()})
            return
        record = {
            "v": 1,
            "exit_code": _exit_code(code),
            "signal": _killing_signal(code),
            "ended_at": time.time(),
            "outcome": found.name,
            "reason": found.reason,
        }
        self._insist("exit.json", record)

    def _insist(self, name: str, record: dict[str, Any]) -> None:
        """Write a record; on a full disk keep the lock and try again, so that no job is taken for lost.

        A job whose directory was deleted has nowhere to be recorded.
        """
        while self.directory.exists() and not _try_to_write(self.root, self.directory / name, record):
            self._beat()
            time.sleep(HEARTBEAT_S)


def _exit_code(code: int | None) -> int | None:
    return None if code is None or code < 0 else code


def _killing_signal(code: int | None) -> int | None:
    return None if code is None or code >= 0 else -code


def _try_to_write(root: Path, path: Path, record: dict[str, Any]) -> bool:
    """Whether `record` is on disk."""
    try:
        reserve.write_once(root, path, plain_json.encode(record))
    except OSError as error:
        _complain(f"{path}: {error}")
        return False
    return True


def _is_child(launch_path: Path, run_id: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        launch = plain_json.read_json(launch_path)
        return launch is not None and launch.get("run_id") == run_id
    return False


def _complain(sentence: str) -> None:
    """Unbuffered, and never in the way: the disk of this log may be the full one."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {sentence}\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


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


def _begin(directory: Path, launch: dict[str, Any], lock: int) -> Supervisor | None:
    """A supervisor with its work, started or adopted; None when the job is over."""
    if (directory / "exit.json").exists():
        return None
    supervisor = Supervisor(directory, launch, lock)
    started = plain_json.read_json(directory / "started.json")
    if started is None:
        supervisor.start()
    else:
        supervisor.adopt(started)
    return supervisor


def main(directory: Path) -> int:
    """Supervise the job in `directory`; 0 when there is nothing more to do for it."""
    _detach()
    try:
        launch = plain_json.read_json(directory / "launch.json")
        if launch is None:
            raise FileNotFoundError(f"{directory} has no launch.json")
        path = Path(launch["lock"])
        lock = locks.take(path, LOCK_TIMEOUT_S)
        supervisor = _begin(directory, launch, lock)
    except (OSError, ValueError, KeyError) as error:
        _complain(f"could not start: {error}")
        _answer(f"{type(error).__name__}: {error}\n".encode())
        return 1
    _answer(STARTED)
    if supervisor is not None:
        supervisor.run()
    locks.give_back(path, lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
