"""`roost status`, `wait`, `stop`, `jobs` and `logs`."""

import time
from contextlib import aclosing
from typing import Annotated

import typer

from console import operations
from console.cli.agreement import agreement
from console.cli.log_output import LogOutput
from console.cli.options import ACTOR, Host, Json, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.text import job_lines, job_table, progress_line, state_words
from console.operations_waiting import Until, wait_for_job
from console.state.link import LinkState, Lost, Up
from console.state.sanitize import one_line
from remote.protocol.frames import LogData, LogTruncated
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.progress import Note, ProgressRecord, StageChanged
from remote.protocol.requests import LogPage

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job id, as `roost jobs` lists it.")]

NARRATION_INTERVAL_S = 5.0
"""The same stage is narrated at most this often."""


def exit_code_of(job: Job) -> int:
    """0 for a job that succeeded or goes on, 5 where it met an unmet precondition, 1 for every other end."""
    match job.state:
        case Finished(outcome="succeeded"):
            return 0
        case Finished(exit_code=5):
            return 5
        case state:
            return 1 if is_over(state) else 0


async def follow_until_over(session: operations.Session, job_id: str, *, timeout_s: float | None) -> Job:
    """Narrate a job's progress until it is over; raises a ConsoleError with code `timeout`, the job goes on."""
    narrator = Narrator()
    job = await wait_for_job(session, job_id, timeout_s=timeout_s, tell=narrator)
    narrate("\n".join([f"{job_id}: {_end_words(job, narrator.last_note)}", *hint_lines(job)]))
    return job


async def carry_on(session: operations.Session, job: Job, *, no_wait: bool, timeout_s: float | None) -> Job:
    """A job that was just started: followed to its end, or left to itself; raises as `follow_until_over`."""
    narrate(f"started {job.job_id}")
    return job if no_wait else await follow_until_over(session, job.job_id, timeout_s=timeout_s)


class Narrator:
    """Says on stderr how a job goes: changes of the link, and progress, the same topic not too often."""

    def __init__(self) -> None:
        self._is_lost = False
        self._narrated: tuple[object, float] = (None, 0.0)
        self.last_note: str | None = None

    def __call__(self, event: Job | ProgressRecord | LinkState) -> None:
        """Say what there is to say of one event."""
        match event:
            case ProgressRecord():
                topic = _topic(event)
                if topic != self._narrated[0] or time.monotonic() - self._narrated[1] >= NARRATION_INTERVAL_S:
                    narrate(progress_line(event))
                    self._narrated = (topic, time.monotonic())
                    self.last_note = one_line(event.event.text) if isinstance(event.event, Note) else self.last_note
            case Lost(reason=reason):
                if not self._is_lost:
                    narrate(f"link lost ({reason}); reconnecting, the job goes on")
                self._is_lost = True
            case Up() if self._is_lost:
                self._is_lost = False
                narrate("link is up again")
            case _:
                pass


def _end_words(job: Job, told: str | None) -> str:
    """How a job ended, without the reason where that was its last note."""
    words = state_words(job.state)
    return words.removesuffix(f": {told}") if told else words


def hint_lines(job: Job) -> list[str]:
    """What a failed job's log says last, if that is what to do next."""
    hint = job.last_line.strip() if exit_code_of(job) else ""
    return [f"  {hint}"] if hint.startswith("hint: ") else []


def _topic(record: ProgressRecord) -> object:
    match record.event:
        case StageChanged() as event:
            return event.stage, type(event.state)
        case Note() as event:  # each says something else
            return event
        case event:
            return type(event)


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


def wait(
    job_id: JobName,
    host: Host = operations.EMBEDDED,
    until: Annotated[
        Until,
        typer.Option(
            "--until",
            metavar="STATE",
            help="starting, running, ready (a server that answers), paused, stalled, stopping or over.",
        ),
    ] = "over",
    timeout: Timeout = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Wait until a job is over, or in a state; the exit code says how it ended, 4 that the time was up and it goes on.

    Exit 5 when it is over without having been in that state.
    """

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await wait_for_job(session, job_id, until=until, timeout_s=timeout, tell=Narrator())

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("job", job)
    else:
        print_text("\n".join(job_lines(job)))
    if until == "over":
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which jobs would end; stop nothing.")] = False,  # noqa: FBT002
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Stop a job and the jobs that it started; asks first."""
    if dry_run:
        _show_what_would_end(job_id, host, as_json=as_json)
        return

    async def work() -> Job:
        with agreement(
            f"Stop {job_id} on {host}?",
            said=confirm,
            expected=job_id,
            message=f"stopping {job_id} on {host} needs a confirmation",
            again=f"roost stop {job_id} --host {host} --confirm {job_id}",
        ):
            async with operations.open_host(host, actor=ACTOR) as session:
                return await operations.stop_job(session, job_id, reason=reason, expected_revision=revision)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("job", job)
    else:
        print_text(f"{job.job_id}: {state_words(job.state)}")


def _show_what_would_end(job_id: str, host: str, *, as_json: bool) -> None:
    async def work() -> list[Job]:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations.get_job(session, job_id)
            others = [each for each in await operations.list_jobs(session) if each.run_id == job_id]
            return [each for each in (job, *others) if not is_over(each.state)]

    jobs = execute(work(), as_json=as_json)
    if as_json:
        print_document("jobs", jobs)
    else:
        print_text("\n".join(job_table(jobs)) if jobs else f"{job_id} is over, and so is what it started")


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
