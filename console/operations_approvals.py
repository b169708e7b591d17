"""The inbox of a host: to put a change before a person instead of making it, and to answer what waits there."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from console.errors import ConsoleError
from console.operations import Session, ask, petition
from remote.protocol.approvals import (
    Approval,
    ApprovalList,
    ApprovalReply,
    DecideApproval,
    GetApproval,
    ListApprovals,
    RecordRefusal,
)
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.requests import Done

DECISION_TIMEOUT_S = 300.0
"""An approved change is made before the answer comes; that of a run hashes its inputs again."""

_LOOK_S = 0.5


@contextmanager
def petitioning(why: str) -> Iterator[None]:
    """Every change that is asked for within goes into the host's inbox, and ApprovalAwaited is raised in place of its reply."""
    token = petition.set(why)
    try:
        yield
    finally:
        petition.reset(token)


def is_petitioning() -> bool:
    """Whether what is asked for now goes into the inbox."""
    return petition.get() is not None


async def list_approvals(session: Session) -> ApprovalList:
    """What waits for a person, then what was decided, each newest first."""
    return await ask(session, ListApprovals(), ApprovalList)


async def get_approval(session: Session, approval_id: str) -> Approval:
    """One request as it is now."""
    reply = await ask(session, GetApproval(approval_id=approval_id), ApprovalReply, timeout_s=DECISION_TIMEOUT_S)
    return reply.approval


async def wait_for_approval(session: Session, approval_id: str, *, timeout_s: float | None = None) -> Approval:
    """The request once it is decided and, where it was approved, its change was made or failed; raises `timeout`, and it waits on."""
    try:
        async with asyncio.timeout(timeout_s):
            while not is_settled(found := await get_approval(session, approval_id)):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)  # the host streams how many wait, not what becomes of each
            return found
    except TimeoutError:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.TIMEOUT,
                message=f"nobody decided {approval_id} in {timeout_s:g} s; it waits on",
                retryable=True,
                next_command=f"roost approvals wait {approval_id} --timeout {timeout_s:g}",
                approval_id=approval_id,
            )
        ) from None


def is_settled(approval: Approval) -> bool:
    """Whether nothing more will become of a request."""
    return approval.state != "waiting" and (approval.state != "approved" or approval.done or approval.error is not None)


async def decide_approval(
    session: Session, approval_id: str, fingerprint: str, *, approve: bool, note: str = ""
) -> Approval:
    """Approve a request as it was seen, which makes its change, or refuse it; a conflict says what changed since."""
    request = DecideApproval(approval_id=approval_id, fingerprint=fingerprint, approve=approve, note=note)
    return (await ask(session, request, ApprovalReply, timeout_s=DECISION_TIMEOUT_S)).approval


async def record_refusal(session: Session, tool: str, summary: str, info: ErrorInfo) -> None:
    """Have the host's journal know that a front door refused a call by itself."""
    await ask(session, RecordRefusal(tool=tool, summary=summary, code=info.code, message=info.message), Done)
