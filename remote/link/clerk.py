"""Who keeps the inbox: takes requests in, has them decided by a person, and makes the changes that were approved, each once."""

import secrets
import time
from collections.abc import Callable

import msgspec

from remote.errors import Conflict, Precondition, RoostError
from remote.jobs.journal import Change, origin
from remote.jobs.store import JobStore
from remote.link.binding import bind, fingerprint, is_same, what_changed
from remote.protocol.approvals import Approvable, Approval, ApprovalList, DecideApproval
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.requests import JobReply, Reply

LIFE_S = 86_400.0
"""A request that nobody decided in a day is asked again by whoever still wants it."""

_LIST_BYTES = MAX_LINE_BYTES * 7 // 8
_AGENTS = "mcp:"

CarryOut = Callable[[Approval], Reply]
"""Makes an approved change in the name of whoever asked; raises RoostError."""


class Clerk:
    """The inbox of one store."""

    def __init__(self, store: JobStore, carry_out: CarryOut) -> None:
        self._store = store
        self._carry_out = carry_out

    def ask(self, request: Approvable, why: str, described: Change) -> Approval:
        """Put a change into the inbox as `described`, bound to the world as it is; one that waits there already is that one.

        Raises RoostError where it could not be carried out now, Precondition for a full inbox.
        """
        now = time.time()
        expires_at = float(int(now + LIFE_S))
        bound, facts = bind(self._store, request, expires_at)
        inbox = self._store.inbox
        with self._store.changing_inbox():
            for each in inbox.list():
                if (
                    each.state == "waiting"
                    and each.asked_by == described.actor
                    and is_same(each.request, each.facts, bound, facts)
                ):
                    return each
            inbox.require_room()
            approval = Approval(
                approval_id=f"approval-{secrets.token_hex(4)}",
                asked_by=described.actor,
                origin=origin(),
                asked_at=now,
                expires_at=expires_at,
                why=why,
                request=bound,
                action=described.action,
                subject=described.subject,
                summary=described.summary,
                facts=facts,
                fingerprint=fingerprint(bound, facts),
            )
            inbox.keep(approval)
        return approval

    def get(self, approval_id: str) -> Approval:
        """One request; what was approved and left half way, because whoever made it died, is made now."""
        found = self._store.inbox.read(approval_id)
        if _is_unfinished(found) and not self._store.is_changing(approval_id):
            with self._store.changing_approval(approval_id):
                return self._finish(self._store.inbox.read(approval_id))
        return found

    def list(self) -> ApprovalList:
        """The inbox, as much of it as goes into one line."""
        found = self._store.inbox.list()
        room = _LIST_BYTES
        for count, each in enumerate(found):
            room -= len(msgspec.json.encode(each)) + 1
            if room < 0:
                return ApprovalList(approvals=found[:count], omitted=len(found) - count)
        return ApprovalList(approvals=found)

    def decide(self, asked: DecideApproval, actor: str) -> Approval:
        """Refuse a request, or approve it and make its change in the name of whoever asked; decided the same way again it is that.

        Raises Precondition for agents, Conflict where it is not as it was seen, was decided otherwise, or the world changed.
        """
        if actor.startswith(_AGENTS):
            raise Precondition(
                "an agent approves and refuses nothing", hint="A person does, on the screen or by `roost approvals`."
            )
        with self._store.changing_approval(asked.approval_id):
            found = self._store.inbox.read(asked.approval_id)
            if found.state == ("approved" if asked.approve else "refused"):
                return self._finish(found)
            _require_open(found, asked.fingerprint)
            decided = msgspec.structs.replace(
                found,
                state="approved" if asked.approve else "refused",
                decided_by=actor,
                decided_at=time.time(),
                note=asked.note,
            )
            if not asked.approve:
                self._store.inbox.keep(decided)
                return decided
            self._require_unchanged(decided)
            self._store.inbox.keep(decided)
            return self._finish(decided)

    def _require_unchanged(self, decided: Approval) -> None:
        try:
            _, now = bind(self._store, decided.request, decided.expires_at)
            changed = what_changed(decided.facts, now)
            if changed:
                raise Conflict(
                    f"the world changed since this was asked: {'; '.join(changed)}",
                    hint="Nothing was done. Whoever asked may ask again.",
                )
        except RoostError as error:
            self._store.inbox.keep(msgspec.structs.replace(decided, state="overtaken", error=error.info))
            if isinstance(error, Conflict):
                raise
            raise Conflict(
                f"this cannot be done any more: {error.info.message}",
                hint="Nothing was done. Whoever asked may ask again.",
            ) from error

    def _finish(self, approval: Approval) -> Approval:
        """Make the change that was approved, unless it is made; the operation ids see to it that it takes effect once."""
        if not _is_unfinished(approval):
            return approval
        try:
            reply = self._carry_out(approval)
        except RoostError as error:
            self._store.inbox.keep(msgspec.structs.replace(approval, error=error.info))
            raise
        job_id = reply.job.job_id if isinstance(reply, JobReply) else None
        done = msgspec.structs.replace(approval, done=True, job_id=job_id)
        self._store.inbox.keep(done)
        return done


def _is_unfinished(approval: Approval) -> bool:
    return approval.state == "approved" and not approval.done and approval.error is None


def _require_open(found: Approval, seen: str) -> None:
    match found.state:
        case "waiting" if seen == found.fingerprint:
            return
        case "waiting":
            raise Conflict(
                f"{found.approval_id} is not what was seen: its fingerprint is {found.fingerprint}",
                hint="Look at it again, then decide.",
                next_command="roost approvals list",
            )
        case "expired":
            raise Conflict(f"{found.approval_id} has expired", hint="Whoever asked may ask again.")
        case state:
            raise Conflict(
                f"{found.approval_id} was {state} already, by {found.decided_by}", next_command="roost approvals list"
            )
