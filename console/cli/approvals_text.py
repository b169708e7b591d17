"""Requests of an inbox as lines for a person."""

from console.state.approvals import details, state_words
from console.state.moments import format_moment
from console.state.sanitize import one_line
from remote.protocol.approvals import Approval, ApprovalList


def inbox_lines(found: ApprovalList) -> list[str]:
    """What waits in full, what was decided a line each."""
    waiting = [each for each in found.approvals if each.state == "waiting"]
    lines = [line for each in waiting for line in (*approval_lines(each), "")]
    lines += [
        one_line(
            f"{each.approval_id}  {format_moment(each.decided_at or each.expires_at)}  {each.asked_by}: "
            f"{each.action.replace('_', ' ')} {each.subject}  {state_words(each)}"
        )
        for each in found.approvals
        if each.state != "waiting"
    ]
    return lines or ["nothing waits for a person, and nothing was asked"]


def approval_lines(approval: Approval) -> list[str]:
    """One request: what would be done, in which world, and what became of it."""
    rows = details(approval)
    width = max(len(label) for label, _ in rows)
    return [one_line(f"{approval.approval_id}  {state_words(approval)}")] + [
        f"  {label:<{width}}  {one_line(words)}" for label, words in rows
    ]
