"""The host's journal: who changed what, when, by which plan, and what came of it."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.errors import ErrorCode

JournalAction = Literal[
    "start",
    "stop",
    "set_secret",
    "try_webhook",
    "remove_secret",
    "reclaim",
    "restore",
    "receive",
    "ask",
    "approve",
    "refuse",
    "tool",
    "allocate",
]
"""What was asked for; `receive` is an artifact that a console brought, `ask` a request for the inbox, `approve` and `refuse` the answer to
one, `tool` a call that a front door refused by itself, `allocate` lasts as long as a batch allocation is kept."""

JournalOutcome = Literal["done", "refused", "failed", "unknown"]
"""`unknown`: it is under way, or whoever carried it out died before its end was written."""

MOST_ENTRIES = 500
"""The most entries of one page."""


class JournalEntry(Message, frozen=True, kw_only=True):
    """One change that was asked for, whether or not it was carried out.

    `actor` is the front door (`screen`, `cli`, `mcp:<client>`), `origin` the address that its connection came from, `plan` the token
    or fingerprint that it was bound to, `approval` the request of the inbox that allowed it. `message` is the host's word where it was not done.
    """

    at: float
    actor: str
    origin: str | None
    action: JournalAction
    subject: str
    summary: str
    plan: str | None
    op_id: str | None
    outcome: JournalOutcome
    code: ErrorCode | None
    message: str | None
    ended_at: float | None
    approval: str | None = None


class ReadJournal(Message, frozen=True, kw_only=True):
    """The newest entries from `since` on, at most `limit` (and at most 500), after leaving out `skip` -> `JournalPage`."""

    since: float | None = None
    limit: int = 100
    skip: int = 0


class JournalPage(Message, frozen=True, kw_only=True):
    """Entries of the journal, newest first; `omitted` older ones that were asked for did not fit."""

    entries: list[JournalEntry]
    omitted: int = 0
