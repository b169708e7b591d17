"""The lines of a link: calls go to the host; answers and events come back."""

from remote.protocol.base import Message
from remote.protocol.errors import ErrorInfo
from remote.protocol.ids import JobId
from remote.protocol.jobs import Job
from remote.protocol.progress import ProgressRecord
from remote.protocol.requests import Reply, Request
from remote.protocol.telemetry import TelemetrySample


class Call(Message, frozen=True, kw_only=True):
    """A request with the number that its answer will carry."""

    call_id: int
    request: Request


class Answer(Message, frozen=True, kw_only=True):
    """The reply to a call."""

    call_id: int
    reply: Reply


class Failure(Message, frozen=True, kw_only=True):
    """The error that a call met; `call_id` 0 is a fault of the link itself."""

    call_id: int
    error: ErrorInfo


class Telemetry(Message, frozen=True, kw_only=True):
    """A reading; replaceable, dropped oldest-first when the line is slow."""

    sample: TelemetrySample


class JobChanged(Message, frozen=True, kw_only=True):
    """A job as it is now."""

    job: Job


class ProgressMade(Message, frozen=True, kw_only=True):
    """The next progress record of a watched job."""

    job_id: JobId
    record: ProgressRecord


class LogData(Message, frozen=True, kw_only=True):
    """The next bytes of a watched log, at their absolute offset."""

    job_id: JobId
    offset: int
    data: bytes


class LogTruncated(Message, frozen=True, kw_only=True):
    """The log is shorter than the cursor or its head was cut off: reading goes on at `start`."""

    job_id: JobId
    start: int


class ApprovalsWaiting(Message, frozen=True, kw_only=True):
    """How many requests of the inbox wait for a person; `changed_at` is when it changed last, by the host's clock."""

    count: int
    changed_at: float


class Heartbeat(Message, frozen=True, kw_only=True):
    """Every second, so that silence means a dead link."""

    at: float


Event = Telemetry | JobChanged | ProgressMade | LogData | LogTruncated | ApprovalsWaiting | Heartbeat
"""What arrives without having been asked for."""

HostFrame = (
    Answer | Failure | Telemetry | JobChanged | ProgressMade | LogData | LogTruncated | ApprovalsWaiting | Heartbeat
)
"""Every line that a host may send."""
