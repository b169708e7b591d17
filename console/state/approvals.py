"""What a request of the inbox is in words (pure)."""

import msgspec

from console.state.moments import format_moment
from console.state.units import format_bytes
from remote.protocol.approvals import Approvable, Approval
from remote.protocol.orders import StartJob
from remote.protocol.specs import RunSpec

MARKS = {"waiting": "?", "approved": "✓", "refused": "✗", "expired": "✗", "overtaken": "✗"}


def details(approval: Approval) -> list[tuple[str, str]]:
    """What would be or was done, for whom, and the world that it is bound to: labels and words."""
    facts = [(label, _fact(label, words)) for label, words in approval.facts.items() if label != "content"]
    by = approval.asked_by if approval.origin is None else f"{approval.asked_by} from {approval.origin}"
    rows = [
        ("change", f"{approval.action.replace('_', ' ')} {approval.subject}"),
        ("about", approval.summary),
        ("asked by", f"{by}, {format_moment(approval.asked_at)}"),
        ("because", approval.why),
        ("exactly", _exactly(approval.request)),
        *facts,
        ("expires", format_moment(approval.expires_at)),
        ("fingerprint", approval.fingerprint),
        ("note", approval.note),
    ]
    return [(label, words) for label, words in rows if words]


def state_words(approval: Approval) -> str:
    """Where it stands."""
    by = "" if approval.decided_by is None else f" by {approval.decided_by}"
    match approval.state:
        case "waiting":
            return "waits for a person"
        case "approved" if approval.error is not None:
            return f"approved{by}, but it failed: {approval.error.message}"
        case "approved":
            made = "done" if approval.done else "being done"
            return f"approved{by}, {made}{'' if approval.job_id is None else f': {approval.job_id}'}"
        case "overtaken":
            why = "" if approval.error is None else f": {approval.error.message}"
            return f"approved{by}, but not done{why}"
        case "refused":
            return f"refused{by}"
        case "expired":
            return "expired: nobody decided in time"


def _exactly(request: Approvable) -> str:
    """The settings of what would be started, as the host has them; of a run its plan says them."""
    if not isinstance(request, StartJob) or isinstance(request.spec, RunSpec):
        return ""
    return msgspec.json.encode(request.spec).decode()


def _fact(label: str, words: str) -> str:
    return format_bytes(int(words)) if label == "bytes" and words.isdigit() else words
