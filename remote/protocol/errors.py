"""Errors that cross the wire: a stable code, and a sentence for a person."""

from enum import Enum

from remote.protocol.base import Message


class ErrorCode(str, Enum):
    """What went wrong, in words that scripts may rely on."""

    USAGE = "usage"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    PRECONDITION = "precondition"
    FAILED = "failed"
    PROTOCOL = "protocol"
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    CONFIRMATION = "confirmation"


class ErrorInfo(Message, frozen=True, kw_only=True):
    """What happened (`message`, with where), what to do next (`hint`, `next_command`), and whether trying again can help.

    `approval_id` names the request in the inbox of the host that it was put into, to wait for a person.
    """

    code: ErrorCode
    message: str
    hint: str | None = None
    retryable: bool = False
    next_command: str | None = None
    approval_id: str | None = None
