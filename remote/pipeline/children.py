"""The jobs that a run starts: named after it, followed until they are over, stopped with it."""

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from remote.agents.harness import EXIT_PRECONDITION
from remote.agents.room import Room, Stopped, Waits
from remote.errors import Precondition, RoostError, WorkFailed
from remote.jobs.store import JobStore
from remote.pipeline.progress import Alive, Failed, Succeeded, judge_child
from remote.protocol.errors import ErrorInfo
from remote.protocol.ids import new_op_id
from remote.protocol.jobs import Finished, Job, Lost, Orphaned, Paused, is_over
from remote.protocol.progress import Progress
from remote.protocol.specs import Spec

_FIRST_POLL_S = 0.05
_POLL_S = 0.5
_STOP_TIMEOUT_S = 180.0
_DEAD_SERVER_S = 3.0
_PAGE = 1000
_RECORDS_BYTES = 64 << 10
_LONGEST_ID = 64


class Seen(NamedTuple):
    """What one look at a job brought: the job, and the events since the look before."""

    job: Job
    events: list[Progress]


class Children:
    """Starts, follows and stops the jobs of one run."""

    def __init__(self, store: JobStore, run_id: str, stop_requested: threading.Event, room: Room) -> None:
        self._store = store
        self._room = room
        self._run_id = run_id
        self._stop_requested = stop_requested
        self._started: list[str] = []
        self._seen: dict[str, int] = {}
        self._servers: list[str] = []

    def start(self, name: str, spec: Spec) -> str:
        """Start the run's job `name`; its id. Raises Stopped instead when the run is to stop."""
        self._refuse_when_stopping()
        job_id = child_id(self._run_id, name)
        # On the list before it is started, so that a start that fails half-way is stopped as well.
        self._started.append(job_id)
        self._room.write(
            self._store.root,
            _RECORDS_BYTES,
            lambda: self._store.start(job_id, spec, actor=self._run_id, op_id=new_op_id(), run_id=self._run_id),
        )
        return job_id

    def follow(self, job_id: str, see: Callable[[Seen], bool]) -> Job:
        """Look at the job until `see` says True or it has succeeded; the job as it was then.

        Raises Stopped, or WorkFailed when the job, or a server that this run serves with, will not deliver; Precondition when
        that is what the job says. While the job is paused, so is the run.
        """
        rest_s = _FIRST_POLL_S
        with self._room.beside_others() as pause:
            while True:
                seen = self._look(job_id)
                done = see(seen)
                match judge_child(seen.job.state):
                    case Failed(reason=reason) if not self._stop_requested.is_set():
                        self._wait_for_dead_servers()
                        self._check_servers(f"; {job_id} failed: {reason}")
                        raise self._failure(seen.job, reason)
                    case Succeeded():
                        return seen.job
                    case Alive() | Failed():
                        pass
                if done:
                    return seen.job
                pause(_waits(seen.job))
                self._refuse_when_stopping()
                self._check_servers()
                self._stop_requested.wait(rest_s)
                rest_s = min(2 * rest_s, _POLL_S)

    def depend_on(self, server: str) -> None:
        """From now on the end of the job `server` is a failure of whatever is being followed."""
        self._servers.append(server)

    def stop(self, job_id: str, reason: str) -> None:
        """Stop a job and wait until it is over; raises WorkFailed when it will not end."""
        self._servers = [server for server in self._servers if server != job_id]
        self._ask_to_stop(job_id, reason)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while not is_over(self._store.get(job_id).state):
            if time.monotonic() > deadline:
                raise WorkFailed(f"{job_id} did not end within {_STOP_TIMEOUT_S:.0f} s of being asked to")
            time.sleep(_FIRST_POLL_S)

    def stop_all(self, reason: str) -> list[str]:
        """Stop every job that still runs, servers included; what could not be stopped, in words."""
        running = [job_id for job_id in reversed(self._started) if self._is_running(job_id)]
        asked = [self._trouble(self._ask_to_stop, job_id, reason) for job_id in running]
        ended = [self._trouble(self.stop, job_id, reason) for job_id in running]
        return [second or first or "" for first, second in zip(asked, ended, strict=True) if first or second]

    def _trouble(self, act: Callable[[str, str], None], job_id: str, reason: str) -> str | None:
        try:
            act(job_id, reason)
        except RoostError as error:
            return f"{job_id}: {error}"
        return None

    def _is_running(self, job_id: str) -> bool:
        return self._store.directory(job_id).exists() and not is_over(self._store.get(job_id).state)

    def _ask_to_stop(self, job_id: str, reason: str) -> None:
        self._store.stop(job_id, actor=self._run_id, op_id=new_op_id(), reason=reason)

    def _look(self, job_id: str) -> Seen:
        """The state first and the events after it, so that the events of a finished job are complete."""
        job = self._store.get(job_id)
        if isinstance(job.state, Orphaned | Lost):
            job = self._store.recover(job_id)
        events: list[Progress] = []
        while page := self._store.read_progress(job_id, self._seen.get(job_id, 0), _PAGE):
            events.extend(record.event for record in page)
            self._seen[job_id] = page[-1].seq
        return Seen(job, events)

    def _failure(self, job: Job, reason: str) -> RoostError:
        """What a job that failed said itself, so that a run's error has its kind and its hint."""
        unmet = isinstance(job.state, Finished) and job.state.exit_code == EXIT_PRECONDITION
        told = None
        with suppress(OSError, msgspec.DecodeError):
            path = self._store.directory(job.job_id) / "failure.json"
            told = msgspec.json.decode(path.read_bytes(), type=ErrorInfo)
        kind = Precondition if unmet else WorkFailed
        return failure(job.job_id, reason, kind=kind, hint=None if told is None else told.hint)

    def _wait_for_dead_servers(self) -> None:
        """A job notices first that its server is gone, and only the server knows why."""
        deadline = time.monotonic() + _DEAD_SERVER_S
        while self._servers and time.monotonic() < deadline:
            if any(is_over(self._store.get(server).state) for server in self._servers):
                return
            time.sleep(_FIRST_POLL_S)

    def _check_servers(self, besides: str = "") -> None:
        for server in self._servers:
            state = self._store.get(server).state
            match judge_child(state):
                case Failed(reason=reason):
                    raise failure(server, f"the server ended while it was needed: {reason}{besides}")
                case Succeeded():
                    raise failure(server, f"the server ended while it was needed{besides}")
                case Alive():
                    pass

    def _refuse_when_stopping(self) -> None:
        if self._stop_requested.is_set():
            raise Stopped("the run was asked to stop; started again, it does nothing twice that is finished")


def _waits(job: Job) -> Waits | None:
    match job.state:
        case Paused(since=since, reason=reason):
            return Waits(job.job_id, since, reason)
        case _:
            return None


def failure(job_id: str, reason: str, *, kind: type[RoostError] = WorkFailed, hint: str | None = None) -> RoostError:
    """The error of a job that failed, with its own hint or else the way to its log."""
    return kind(
        f"{job_id} failed: {reason}",
        hint=f"{hint or 'its log says more'}; what is finished will not be done twice when the run is started again",
        next_command=f"roost logs {job_id}",
    )


def child_id(run_id: str, name: str) -> str:
    """The id of a run's job: `<run>-<name>`, the run shortened to a hash of it where that would be too long."""
    whole = f"{run_id}-{name}"
    if len(whole) <= _LONGEST_ID:
        return whole
    mark = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    kept = run_id[: _LONGEST_ID - len(name) - len(mark) - 2].rstrip("-")
    return f"{kept}-{mark}-{name}"
