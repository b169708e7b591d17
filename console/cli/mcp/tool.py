"""What a tool is: an operation with its arguments, the document that it answers with, and what a host must allow for it."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from console import operations_approvals
from console.config.policy import Policy
from console.errors import ConfirmationNeeded
from console.state.link import LinkState
from remote.protocol.bulk import BulkAdvanced
from remote.protocol.jobs import Job
from remote.protocol.progress import ProgressRecord

Tell = Callable[[Job | ProgressRecord | LinkState | BulkAdvanced], None]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as a tool; `document` names the document that it answers with, `work` gives its payload.

    One that needs no `Session` works without a host. One that can be asked changes something that a person can approve in the inbox.
    """

    name: str
    description: str
    needs: Policy
    takes: type[Any]
    document: str
    work: Callable[[Any, Any, Tell], Awaitable[Any]]
    is_destructive: bool = False
    is_idempotent: bool = True
    is_hostless: bool = False
    is_long: bool = False
    can_be_asked: bool = True


def confirm(said: str | None, expected: str, message: str) -> None:
    """Raises ConfirmationNeeded unless it was said; what goes into the inbox is confirmed there."""
    if said != expected and not operations_approvals.is_petitioning():
        raise ConfirmationNeeded(message, hint=f"if a person wants this, say it again with confirm = {expected!r}")


def looks(name: str, description: str, takes: type[Any], document: str, work: Any, **more: bool) -> Tool:  # noqa: ANN401
    """A tool that changes nothing."""
    return Tool(
        name=name, description=description, needs="read-only", takes=takes, document=document, work=work, **more
    )


def starts(name: str, description: str, takes: type[Any], document: str, work: Any) -> Tool:  # noqa: ANN401
    """A tool that starts a job, the same for the same key, and puts nothing in the place of anything."""
    return Tool(name=name, description=description, needs="operate", takes=takes, document=document, work=work)
