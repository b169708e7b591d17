"""`roost status`, `wait`, `stop`, `jobs` and `logs`."""

import asyncio
import sys
import time
from contextlib import aclosing
from typing import Annotated

import typer

from console import operations
from console.cli.log_output import LogOutput
from console.cli.options import ACTOR, Host, Json, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.text import job_lines, job_table, progress_line, state_words
from console.errors import ConfirmationNeeded, ConsoleError
from console.state.link import Lost, Up
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import LogData, LogTruncated
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.progress import ProgressRecord, StageChanged
from remote.protocol.requests import LogPage

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job id, as `roost jobs` lists it.")]

NARRATION_INTERVAL_S = 5.0
"""The same stage is narrated at most this often."""


def exit_code_of(job: Job) -> int:
    """0 for a job that succeeded, 5 where it met an unmet precondition, 1 for every other end."""
    match job.state:
        case Finished(outcome="succeeded"):
            return 0
        case Finished(exit_code=5):
            return 5
        case _:
            return 1


async def follow_until_over(session: operations.Session, job_id: str, *, timeout_s: float | None) -> Job:
    """Narrate a job's progress until it is over; raises a ConsoleError with code `timeout`, the job goes on."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _follow(session, job_id)
    except TimeoutError:
        raise timed_out(f"{job_id} was not over", job_id, timeout_s) from None


def timed_out(what: str, job_id: str, timeout_s: float | None) -> ConsoleError:
    """The error of a wait that took too long, with code `timeout`; the job itself goes on."""
    return ConsoleError(
        ErrorInfo(
            code=ErrorCode.TIMEOUT,
            message=f"{what} after {timeout_s:g} s; it goes on on the host",
            retryable=True,
            next_command=f"roost wait {job_id}",
        )
    )


async def _follow(session: operations.Session, job_id: str) -> Job:
    latest: Job | None = None
    lost = False
    narrated: tuple[object, float] = (None, 0.0)
    async with aclosing(operations.follow_job(session, job_id)) as events:
        async for event in events:
            match event:
                case Job():
                    latest = event
                case ProgressRecord():
                    topic = _topic(event)
                    if topic != narrated[0] or time.monotonic() - narrated[1] >= NARRATION_INTERVAL_S:
                        narrate(progress_line(event))
                        narrated = (topic, time.monotonic())
                case Lost(reason=reason):
                    if not lost:
                        narrate(f"link lost ({reason}); reconnecting, the job goes on")
                    lost = True
                case Up() if lost:
                    lost = False
                    narrate("link is up again")
                case _:
                    pass
    if latest is None or not is_over(latest.state):
        raise ConsoleError(
            ErrorInfo(code=ErrorCode.CONNECTION, message=f"the link closed before {job_id} was over", retryable=True)
        )
    narrate(f"{job_id}: {state_words(latest.state)}")
    return latest


def _topic(record: ProgressRecord) -> object:
    event = record.event
    return (event.stage, type(event.state)) if isinstance(event, StageChanged) else type(event)


def status(job_id: JobName, host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Show one job: state, progress, results."""

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.get_job(session, job_id)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("job", job)
    else:
        print_text("\n".join(job_lines(job)))


def wait(job_id: JobName, host: Host = operations.EMBEDDED, timeout: Timeout = None, as_json: Json = False) -> None:  # noqa: FBT002
    """Wait until a job is over; the exit code says how it ended."""

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await follow_until_over(session, job_id, timeout_s=timeout)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("job", job)
    else:
        print_text("\n".join(job_lines(job)))
    raise typer.Exit(exit_code_of(job))


def stop(
    job_id: JobName,
    host: Host = operations.EMBEDDED,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="JOB", help="Repeat the job id to stop it unasked.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the host's journal.")] = "asked on the command line",
    revision: Annotated[
        int | None,
        typer.Option("--revision", metavar="N", help="Refuse when the job changed since you saw this revision of it."),
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Stop a job and the jobs that it started; asks first."""

    async def work() -> Job:
        if confirm != job_id and not _confirmed(job_id, host):
            raise ConfirmationNeeded(
                f"stopping {job_id} on {host} needs a confirmation",
                next_command=f"roost stop {job_id} --host {host} --confirm {job_id}",
            )
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.stop_job(session, job_id, reason=reason, expected_revision=revision)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("job", job)
    else:
        print_text(f"{job.job_id}: {state_words(job.state)}")


def _confirmed(job_id: str, host: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Stop {job_id} on {host}?", default=False, err=True)


def list_all(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """List the host's jobs, newest first."""

    async def work() -> list[Job]:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.list_jobs(session)

    jobs = execute(work(), as_json=as_json)
    if as_json:
        print_document("jobs", jobs)
    else:
        print_text("\n".join(job_table(jobs)))


def logs(
    job_id: JobName,
    host: Host = operations.EMBEDDED,
    since: Annotated[
        int | None, typer.Option("--since", metavar="CURSOR", help="Absolute byte offset; default: the end.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=524_288, help="At most this many bytes.")] = 65_536,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,  # noqa: FBT002
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Print a job's log; with --json every page has its offset and the next cursor."""

    async def work() -> None:
        async with operations.open_host(host, actor=ACTOR) as session:
            page = await operations.read_log(session, job_id, offset=since, limit=limit)
            output = LogOutput(as_json=as_json, stream=follow)
            output.print_page(page)
            if follow:
                await _follow_log(session, page, output)
            output.finish()

    execute(work(), as_json=as_json)


async def _follow_log(session: operations.Session, page: LogPage, output: LogOutput) -> None:
    cursor = page.offset + len(page.data)
    await operations.watch(session, logs={page.job_id: cursor})
    async with aclosing(operations.host_events(session)) as events:
        while True:
            if is_over((job := await operations.get_job(session, page.job_id)).state) and cursor >= job.log_size:
                return
            event = await anext(events)
            match event:
                case LogData(job_id=source, offset=offset, data=data) if source == page.job_id:
                    cursor = offset + len(data)
                    output.print_page(LogPage(job_id=source, offset=offset, data=data, start=page.start, size=cursor))
                case LogTruncated(start=start):
                    cursor = start
                    narrate(f"the log's head was cut; reading goes on at byte {start}")
                case Lost(reason=reason):
                    narrate(f"link lost ({reason}); reconnecting")
                case _:
                    pass
