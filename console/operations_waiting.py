"""To wait until a job is somewhere, without ever waiting longer than was said."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

from console.errors import ConsoleError
from console.operations import Session, follow_job
from console.state.link import LinkState
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId
from remote.protocol.jobs import (
    Finished,
    Job,
    JobState,
    Orphaned,
    Paused,
    Queued,
    Running,
    Stalled,
    Stopping,
    is_over,
)
from remote.protocol.progress import ProgressRecord, ServerReady

Until = Literal["starting", "running", "ready", "paused", "stalled", "stopping", "over"]
"""What can be waited for: `ready` is a server that answers; `starting` and `running` hold for all that comes after, too."""

_STATES: dict[Until, type[JobState]] = {"paused": Paused, "stalled": Stalled, "stopping": Stopping}


def has_reached(job: Job, until: Until) -> bool:
    """Whether a job is or was where it was waited for, as far as its state tells."""
    match until:
        case "over":
            return is_over(job.state)
        case "starting":
            return not isinstance(job.state, Queued)
        case "running":
            return isinstance(job.state, (Running, Stalled, Paused, Stopping, Orphaned, Finished))
        case "ready":
            return False
        case _:
            return isinstance(job.state, _STATES[until])


async def wait_for_job(
    session: Session,
    job_id: JobId,
    *,
    until: Until = "over",
    timeout_s: float | None = None,
    tell: Callable[[Job | ProgressRecord | LinkState], None],
) -> Job:
    """The job once it is where it was waited for; `tell` hears of everything on the way.

    Raises a ConsoleError with code `timeout` when that takes longer, the job goes on; `precondition` when the job is over without
    having been there; `connection` when the link closed for good.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _wait(session, job_id, until, tell)
    except TimeoutError:
        what = f"{job_id} was not over" if until == "over" else f"{job_id} was not {until}"
        raise timed_out(what, job_id, timeout_s, until=until) from None


def timed_out(what: str, job_id: str, timeout_s: float | None, *, until: Until = "over") -> ConsoleError:
    """The error of a wait that took too long, with code `timeout`; the job itself goes on, and the next command waits as long again."""
    state = "" if until == "over" else f" --until {until}"
    return ConsoleError(
        ErrorInfo(
            code=ErrorCode.TIMEOUT,
            message=f"{what} after {timeout_s:g} s; it goes on on the host",
            retryable=True,
            next_command=f"roost wait {job_id}{state} --timeout {timeout_s:g}",
        )
    )


async def _wait(
    session: Session, job_id: JobId, until: Until, tell: Callable[[Job | ProgressRecord | LinkState], None]
) -> Job:
    latest: Job | None = None
    async with aclosing(follow_job(session, job_id)) as events:
        async for event in events:
            tell(event)
            if isinstance(event, Job):
                latest = event
            is_ready = until == "ready" and isinstance(event, ProgressRecord) and isinstance(event.event, ServerReady)
            if latest is not None and (is_ready or has_reached(latest, until)):
                return latest
    if latest is None or not is_over(latest.state):
        raise ConsoleError(
            ErrorInfo(code=ErrorCode.CONNECTION, message=f"the link closed before {job_id} was {until}", retryable=True)
        )
    raise ConsoleError(
        ErrorInfo(
            code=ErrorCode.PRECONDITION,
            message=f"{job_id} is over and was not seen {until}",
            next_command=f"roost status {job_id}",
        )
    )
