"""Requests that start or end work."""

from remote.protocol.base import Message
from remote.protocol.ids import JobId, OpId
from remote.protocol.specs import Spec


class StartJob(Message, frozen=True, kw_only=True):
    """Start `spec` under the name `job_id` -> `JobReply`; the same name and spec again returns the job that is there."""

    job_id: JobId
    spec: Spec
    op_id: OpId


class StopJob(Message, frozen=True, kw_only=True):
    """Ask a job to stop, its children included -> `JobReply` (state `stopping` or already over)."""

    job_id: JobId
    op_id: OpId
    reason: str
    expected_revision: int | None = None
