"""The inbox of a host: what an agent asked for and a person has to approve or refuse."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId
from remote.protocol.orders import StartJob, StopJob
from remote.protocol.secrets import RemoveSecret
from remote.protocol.storage import MoveToTrash, RestoreFromTrash

Approvable = StartJob | StopJob | MoveToTrash | RestoreFromTrash | RemoveSecret
"""The changes that can be put before a person, each with all that it needs."""

APPROVABLE = (StartJob, StopJob, MoveToTrash, RestoreFromTrash, RemoveSecret)

ApprovalState = Literal["waiting", "approved", "refused", "expired", "overtaken"]
"""`overtaken`: a person said yes, but the world was not as it was when it was asked; nothing was done."""

MOST_WAITING = 50
"""So many requests wait at once; then none is taken in."""

MOST_LISTED = 100
"""So many are kept and listed."""


class Approval(Message, frozen=True, kw_only=True):
    """One request: who asked for which change and why it needs a yes, and what became of it.

    `facts` is the world that it was asked in, `fingerprint` stands for both. `error` says why an approved change was not made,
    `job_id` which job it started or stopped; `done` is whether it was made. Times are seconds since the epoch, by the host's clock.
    """

    approval_id: JobId
    asked_by: str
    origin: str | None
    asked_at: float
    expires_at: float
    why: str
    request: Approvable
    action: str
    subject: str
    summary: str
    facts: dict[str, str]
    fingerprint: str
    state: ApprovalState = "waiting"
    decided_by: str | None = None
    decided_at: float | None = None
    note: str = ""
    done: bool = False
    error: ErrorInfo | None = None
    job_id: JobId | None = None


class AskApproval(Message, frozen=True, kw_only=True):
    """Put a change into the inbox instead of making it -> `ApprovalReply`; the same again, while it waits, is the same request."""

    request: Approvable
    why: str


class GetApproval(Message, frozen=True, kw_only=True):
    """One request as it is now -> `ApprovalReply`."""

    approval_id: JobId


class ListApprovals(Message, frozen=True, kw_only=True):
    """What waits, then what was decided, each newest first -> `ApprovalList`."""


class DecideApproval(Message, frozen=True, kw_only=True):
    """Approve a request as `fingerprint` says it was seen, which makes the change, or refuse it -> `ApprovalReply`.

    Agents (`mcp:…`) decide nothing.
    """

    approval_id: JobId
    fingerprint: str
    approve: bool
    note: str = ""


class RecordRefusal(Message, frozen=True, kw_only=True):
    """Put on record that a front door refused to pass on what it was asked for -> `Done`."""

    tool: str
    summary: str
    code: ErrorCode
    message: str


class ApprovalReply(Message, frozen=True, kw_only=True):
    """One request of the inbox."""

    approval: Approval


class ApprovalList(Message, frozen=True, kw_only=True):
    """The inbox; `omitted` of those that were decided did not fit."""

    approvals: list[Approval]
    omitted: int = 0
