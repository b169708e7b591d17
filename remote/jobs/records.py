"""The records of a job's directory as the store reads them; the supervisor writes the same names with plain JSON."""

import os
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from remote.artifacts import atomic
from remote.jobs.log_bound import LOG_LIMIT_BYTES
from remote.protocol.jobs import JobResult

RECORD_VERSION = 1
"""The newest version of a record that this release understands."""


ROOT_VERSION = 1
"""The newest layout of a root that this release may change."""


class UnreadableRecord(Exception):
    """A record that this release cannot read: newer than it, or damaged."""


class LaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor is to run; `environment` is laid over the supervisor's own, so no inherited secret is on disk."""

    v: int = RECORD_VERSION
    job_id: str
    agent: str
    argv: list[str]
    environment: dict[str, str]
    cwd: str
    cookie: str
    lock: str
    release: str
    created_at: float
    created_by: str
    run_id: str | None
    stop_grace_s: float
    log_limit_bytes: int = LOG_LIMIT_BYTES
    gpus: list[int] = []
    gpu_locks: str = ""


class StartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The work's and its supervisor's identity; start times in clock ticks since boot."""

    v: int
    pid: int
    start_time: int
    supervisor_pid: int
    supervisor_start_time: int
    incarnation: str
    cookie: str
    started_at: float


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for the stop, when and why."""

    v: int = RECORD_VERSION
    requested_by: str
    requested_at: float
    reason: str


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the other records do not say, and whose supervision it is; replaced as a whole, `rev` grows."""

    v: int
    rev: int
    phase: Literal["running", "stopping", "unkillable"]
    since: float
    pids: list[int] = []
    supervisor_pid: int = 0
    supervisor_start_time: int = 0


class PauseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Written by the work while it waits for room to write; gone once it goes on. None: it cannot be told, or another job waits."""

    v: int = RECORD_VERSION
    since: float
    reason: str
    path: str | None = None
    bytes_free: int | None = None
    inodes_free: int | None = None
    bytes_needed: int | None = None


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the job; the first writer wins."""

    v: int = RECORD_VERSION
    exit_code: int | None
    signal: int | None
    ended_at: float
    outcome: Literal["succeeded", "failed", "stopped"]
    reason: str


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation that took effect under an operation id; asking again finds this and changes nothing."""

    v: int = RECORD_VERSION
    kind: Literal["start", "stop", "reclaim", "restore"]
    job_id: str
    actor: str
    at: float


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """All that a job's directory says, each None when it is not there; times of `heartbeat` by the host's wall clock."""

    launch: LaunchRecord | None
    start: StartRecord | None
    stop: StopRecord | None
    state: StateRecord | None
    exit: ExitRecord | None
    pause: PauseRecord | None = None
    heartbeat: float | None

    def supervisor(self) -> tuple[int, int] | None:
        """The pid and start time of the latest supervisor; None before the first."""
        if self.state is not None and self.state.supervisor_pid:
            return self.state.supervisor_pid, self.state.supervisor_start_time
        return None if self.start is None else (self.start.supervisor_pid, self.start.supervisor_start_time)


_T = TypeVar("_T")
_launch = msgspec.json.Decoder(LaunchRecord)
_start = msgspec.json.Decoder(StartRecord)
_stop = msgspec.json.Decoder(StopRecord)
_state = msgspec.json.Decoder(StateRecord)
_pause = msgspec.json.Decoder(PauseRecord)
_exit = msgspec.json.Decoder(ExitRecord)
_result = msgspec.json.Decoder(JobResult)
_operation = msgspec.json.Decoder(OperationRecord)
_encoder = msgspec.json.Encoder()


class RootRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a root, so that an older release does not change what it does not understand."""

    v: int = ROOT_VERSION


def claim_root(root: Path) -> bool:
    """Put this release's layout on record in a new root; whether the root's is a newer one. Raises OSError."""
    path = root / "schema.json"
    if not path.exists():
        atomic.write_once(path, encode(RootRecord()))
    try:
        return msgspec.json.decode(path.read_bytes(), type=RootRecord).v > ROOT_VERSION
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True


def read_records(directory: Path) -> Records:
    """The records in `directory`; raises UnreadableRecord."""
    return Records(
        launch=_read(directory, "launch.json", _launch),
        start=_read(directory, "started.json", _start),
        stop=_read(directory, "stop.json", _stop),
        state=_read(directory, "state.json", _state),
        exit=_read(directory, "exit.json", _exit),
        pause=_read(directory, "pause.json", _pause),
        heartbeat=modified_at(f"{directory}/heartbeat"),
    )


def read_launch(directory: Path) -> LaunchRecord | None:
    """The launch record alone; raises UnreadableRecord."""
    return _read(directory, "launch.json", _launch)


def read_result(directory: Path) -> JobResult | None:
    """The job's result, None while there is none that can be read."""
    data = read_bytes(f"{directory}/result.json")
    try:
        return None if data is None else _result.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_operation(directory: Path, op_id: str) -> OperationRecord | None:
    """The operation that took effect under `op_id`, if any; raises UnreadableRecord."""
    return _read(directory, f"{op_id}.json", _operation)


def encode(record: msgspec.Struct) -> bytes:
    """A record as JSON with a newline at its end."""
    return msgspec.json.format(_encoder.encode(record), indent=1) + b"\n"


def read_bytes(path: str) -> bytes | None:
    """A small file's content, None when it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def modified_at(path: str) -> float | None:
    """When `path` was last modified (seconds since the epoch), None when it is not there."""
    try:
        return Path(path).stat().st_mtime
    except FileNotFoundError:
        return None


def _read(directory: Path, name: str, decoder: "msgspec.json.Decoder[_T]") -> _T | None:
    path = f"{directory}/{name}"
    data = read_bytes(path)
    if data is None:
        return None
    try:
        record = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"{path} cannot be read by this release: {error}") from error
    version = getattr(record, "v", RECORD_VERSION)
    if version > RECORD_VERSION:
        raise UnreadableRecord(f"{path} is version {version}, this release reads up to {RECORD_VERSION}")
    return record
