"""A job and its state: a union in which each variant carries only what is true then.

Times are seconds since the Unix epoch (UTC) by the host's clock.
"""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.ids import JobId
from remote.protocol.progress import ProgressRecord
from remote.protocol.specs import Spec


class Queued(Message, frozen=True, kw_only=True):
    """Accepted; no process yet."""

    since: float


class Starting(Message, frozen=True, kw_only=True):
    """The supervisor lives; the work's process is not on record yet."""

    since: float


class Running(Message, frozen=True, kw_only=True):
    """The work's process is alive and its supervisor's heart beats."""

    since: float
    pid: int


class Stalled(Message, frozen=True, kw_only=True):
    """The process is alive but the supervisor's heartbeat is old; never restarted by itself."""

    since: float
    pid: int
    heartbeat_age_s: float


class Paused(Message, frozen=True, kw_only=True):
    """Waiting for a condition that a person or the host must mend (a full disk, for one)."""

    since: float
    pid: int
    reason: str


class Stopping(Message, frozen=True, kw_only=True):
    """A stop was asked for and is being carried out."""

    since: float
    pid: int
    requested_by: str
    reason: str


class Finished(Message, frozen=True, kw_only=True):
    """The exit is on record; `succeeded` also means that the promised outputs were verified."""

    started_at: float
    ended_at: float
    outcome: Literal["succeeded", "failed", "stopped"]
    exit_code: int | None
    signal: int | None
    reason: str


class Lost(Message, frozen=True, kw_only=True):
    """The process is gone and its exit is unknown."""

    since: float
    reason: str


class Orphaned(Message, frozen=True, kw_only=True):
    """The supervisor is gone, its process lives on; its exit code will be unknowable."""

    since: float
    pid: int


class Foreign(Message, frozen=True, kw_only=True):
    """The job belongs to another incarnation of this host that still writes: hands off."""

    since: float
    incarnation: str


class Unkillable(Message, frozen=True, kw_only=True):
    """Processes that survived SIGKILL (stuck in the kernel): the host needs recycling."""

    since: float
    pids: list[int]


class Quarantined(Message, frozen=True, kw_only=True):
    """The records cannot be read by this release; shown, never touched."""

    reason: str


JobState = (
    Queued
    | Starting
    | Running
    | Stalled
    | Paused
    | Stopping
    | Finished
    | Lost
    | Orphaned
    | Foreign
    | Unkillable
    | Quarantined
)


class ArtifactRef(Message, frozen=True, kw_only=True):
    """A finished artifact: its kind, its absolute path and the SHA-256 of its manifest."""

    kind: str
    path: str
    manifest_sha256: str


class JobResult(Message, frozen=True, kw_only=True):
    """What a job leaves behind: artifacts, and the few figures that a person asks for first."""

    outputs: list[ArtifactRef] = []
    summary: dict[str, str | int | float | bool | None] = {}


class Job(Message, frozen=True, kw_only=True):
    """Everything a console shows of a job. Log bytes `[log_start, log_size)` are readable; offsets are absolute.

    `gpus` are the devices that it was given, by NVML's numbers; they are its own until it is over.
    """

    job_id: JobId
    agent: str
    state: JobState
    revision: int
    created_at: float
    created_by: str
    command: list[str]
    spec: Spec | None = None
    run_id: JobId | None = None
    gpus: list[int] = []
    log_start: int = 0
    log_size: int = 0
    last_line: str = ""
    progress_seq: int = 0
    last_progress: ProgressRecord | None = None
    result: JobResult | None = None


def has_its_devices(state: JobState) -> bool:
    """Whether the devices that the job was given are still its own."""
    return not is_over(state) and not isinstance(state, (Queued, Foreign))


def is_over(state: JobState) -> bool:
    """Whether nothing will happen to the job by itself any more."""
    return isinstance(state, (Finished, Lost, Quarantined))
