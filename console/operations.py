"""What can be done with a host: one typed function per operation, for the screen, the command line and MCP alike.

Every function that reaches a host takes the session that `open_host` yields and raises `console.errors.ConsoleError`
with the code, the message and the next step. Mutations take an operation id: the same id never takes effect twice.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import tomllib

from console.config.hosts import HostConfig, hosts_file, load_hosts
from console.config.policy import Policy
from console.embedded import demo, lifecycle
from console.embedded.locations import EmbeddedHome
from console.errors import ApprovalAwaited, ConsoleError, HostError, UsageError
from console.link import warm
from console.link.client import HostLink
from console.link.private_keys import Ask, ask_passphrase
from console.state.link import Closed, LinkState
from remote.protocol.approvals import APPROVABLE, ApprovalReply, AskApproval
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Event, JobChanged, ProgressMade
from remote.protocol.ids import LONGEST_KEY, JobId, OpId, is_job_id, keyed_job_id, new_job_id, new_op_id
from remote.protocol.jobs import Job, is_over
from remote.protocol.journal import MOST_ENTRIES, JournalEntry, JournalPage, ReadJournal
from remote.protocol.progress import ProgressRecord
from remote.protocol.reports import RunPlan, VerdictReport
from remote.protocol.requests import (
    GetJob,
    JobList,
    JobReply,
    ListJobs,
    LogPage,
    PlanRun,
    ProgressPage,
    ReadLog,
    ReadPlan,
    ReadProgress,
    ReadVerdict,
    Reply,
    Request,
    StartJob,
    StopJob,
    Watch,
)
from remote.protocol.specs import RunSpec, Spec

EMBEDDED = "embedded"
"""The name of the host that every installation has."""

PLAN_TIMEOUT_S = 120.0
"""Planning hashes the inputs of a run, which takes longer than other requests."""

LOOK_TIMEOUT_S = 600.0
"""A look at every file of a large store on a slow disk takes minutes."""

Session = HostLink
"""An open host, as `open_host` yields it; opaque to the front doors."""

_R = TypeVar("_R")

_stays_warm: ContextVar[bool] = ContextVar("stays_warm", default=False)

petition: ContextVar[str | None] = ContextVar("petition", default=None)
"""Why changes that are asked for now go into the host's inbox; None while they are made at once."""


@asynccontextmanager
async def open_host(name: str, *, actor: str) -> AsyncGenerator[Session, None]:
    """A session with the host `name`; the embedded host is started when it does not run."""
    stays_warm = _stays_warm.get() and not name.startswith(demo.PREFIX)  # a demo host ends when nobody is there
    try:
        host = await find_host(name)
        async with HostLink(host, actor=actor, locate=lambda: _find_again(name), may_be_warm=stays_warm) as session:
            try:
                yield session
            finally:
                if stays_warm and not session.is_warm:
                    warm.begin_session(host)
    except ConsoleError as error:
        error.name_host(name)
        raise


async def find_host(name: str) -> HostConfig:
    """Where the host `name` is; the embedded one is started when it does not run. Raises UsageError for no host."""
    if name == EMBEDDED:
        return await lifecycle.ensure_running(EmbeddedHome.default())
    hosts = load_hosts()
    if name not in hosts and name.startswith(demo.PREFIX):
        return await demo.ensure_running(name.removeprefix(demo.PREFIX))
    if name not in hosts:
        known = ", ".join(sorted([EMBEDDED, *hosts]))
        raise UsageError(
            f"there is no host named {name!r}; known hosts: {known}", hint=f"add [hosts.{name}] to {hosts_file()}"
        )
    return hosts[name]


async def _find_again(name: str) -> HostConfig:
    """As `find_host`, for a console that was there before: what was stopped on purpose since is left alone."""
    if name == EMBEDDED:
        lifecycle.refuse_stopped(EmbeddedHome.default())
    elif name.startswith(demo.PREFIX) and name not in load_hosts():
        lifecycle.refuse_stopped(demo.demo_home(name.removeprefix(demo.PREFIX)))
    return await find_host(name)


async def ask(session: Session, request: Request, reply: type[_R], *, timeout_s: float = 30.0) -> _R:
    """The host's reply to a request, which must be of type `reply`; raises ConsoleError, ApprovalAwaited for a change while petitioning."""
    _require_job_id(getattr(request, "job_id", None))
    why = petition.get()
    if why is not None and isinstance(request, APPROVABLE):
        await _put_before_a_person(session, AskApproval(request=request, why=why))
    answer: Reply = await session.call(request, timeout_s=timeout_s)
    if not isinstance(answer, reply):
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.PROTOCOL,
                message=f"the host answered {type(request).__name__} with {type(answer).__name__}",
                hint="console and host differ; reconnect so that the host gets this release",
            )
        )
    return answer


async def _put_before_a_person(session: Session, request: AskApproval) -> NoReturn:
    reply = await session.call(request, timeout_s=LOOK_TIMEOUT_S)
    assert isinstance(reply, ApprovalReply), "the host answers this with nothing else"
    asked = reply.approval
    what = f"{asked.action.replace('_', ' ')} {asked.subject}"
    raise ApprovalAwaited(asked.approval_id, what, asked.why)


def _require_job_id(job_id: JobId | None) -> None:
    if job_id is not None and not is_job_id(job_id):
        raise UsageError(
            f"{job_id!r} is no job id: lower-case letters, digits and dashes, at most 64 characters",
            hint="`roost jobs` lists them",
        )


def host_events(session: Session) -> AsyncGenerator[LinkState | Event, None]:
    """Changes of the link and everything that the host streams, in order."""
    return session.events()


async def watch(
    session: Session,
    *,
    telemetry: bool = False,
    logs: dict[str, int] | None = None,
    progress: dict[str, int] | None = None,
) -> None:
    """Choose what `host_events` streams; logs by absolute byte offset, progress by sequence number. Jobs always stream."""
    await session.watch(Watch(telemetry=telemetry, jobs=True, logs=logs or {}, progress=progress or {}))


async def list_jobs(session: Session) -> list[Job]:
    """All jobs of the host, newest first."""
    jobs: list[Job] = []
    while True:
        page = await ask(session, ListJobs(skip=len(jobs)), JobList)
        jobs += page.jobs
        if not page.omitted or not page.jobs:
            return jobs


async def get_job(session: Session, job_id: JobId) -> Job:
    """One job as it is now."""
    return (await ask(session, GetJob(job_id=job_id), JobReply)).job


async def stop_job(
    session: Session, job_id: JobId, *, reason: str, expected_revision: int | None = None, op_id: OpId | None = None
) -> Job:
    """Ask a job, and the jobs that it started, to stop; refused when it is not at `expected_revision` any more."""
    request = StopJob(job_id=job_id, op_id=op_id or new_op_id(), reason=reason, expected_revision=expected_revision)
    return (await ask(session, request, JobReply, timeout_s=60.0)).job


async def read_log(session: Session, job_id: JobId, *, offset: int | None, limit: int) -> LogPage:
    """Log bytes from an absolute offset; None means the last `limit` bytes."""
    return await ask(session, ReadLog(job_id=job_id, offset=offset, limit=limit), LogPage)


async def read_progress(session: Session, job_id: JobId, *, after_seq: int = 0) -> list[ProgressRecord]:
    """A page of progress records after `after_seq`; an empty list means that there are no more."""
    return (await ask(session, ReadProgress(job_id=job_id, after_seq=after_seq), ProgressPage)).records


def run_document(source: str) -> str:
    """The text of a run file: `source` is the path of a TOML file or the name of a preset on the host.

    Raises UsageError for a file that is missing or no TOML.
    """
    path = Path(source)
    if path.suffix != ".toml" and not path.exists():
        return f"preset = {msgspec.json.encode(source).decode()}\n"
    try:
        text = path.read_text(encoding="utf-8")
        tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the run file {source}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} is not a TOML file: {error}") from error
    return text


async def plan_run(session: Session, document: str, overrides: dict[str, str] | None = None) -> RunPlan:
    """Resolve a run on the host: every stage, command, byte and problem, with a fingerprint."""
    return await ask(session, PlanRun(document=document, overrides=overrides or {}), RunPlan, timeout_s=PLAN_TIMEOUT_S)


async def start_run(session: Session, plan: RunPlan, *, op_id: OpId | None = None) -> Job:
    """Start the run of a plan as a job on the host; a plan with problems is refused."""
    stem = f"run-{plan.run.name}"
    if plan.problems and not await was_started(session, stem, op_id):
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.PRECONDITION,
                message=f"run {plan.run.name} cannot start: " + "; ".join(plan.problems),
                hint="mend what is named, or change the run file, then plan again",
            )
        )
    return await start_job(session, stem, RunSpec(run=plan.run), op_id=op_id)


async def read_plan(session: Session, fingerprint: str) -> RunPlan:
    """A plan that the host has shown before, as it was then."""
    return await ask(session, ReadPlan(fingerprint=fingerprint), RunPlan)


async def apply_plan(session: Session, fingerprint: str, *, op_id: OpId | None = None) -> Job:
    """Start the run of a plan that was shown, exactly so; a conflict says what changed since. Applied again, it is the same job."""
    shown = await read_plan(session, fingerprint)
    spec = RunSpec(run=shown.run, plan=fingerprint)
    key = op_id or f"plan-{fingerprint[:16]}"
    return await start_job(session, f"run-{shown.run.name}", spec, op_id=key, timeout_s=2 * PLAN_TIMEOUT_S)


async def start_job(
    session: Session, stem: str, spec: Spec, *, op_id: OpId | None = None, timeout_s: float = 60.0
) -> Job:
    """Start `spec` as a job whose name begins with `stem`; the same operation id again is the same job, also with other words.

    Raises a conflict, with what differs, where that id started another spec; UsageError where it is none.
    """
    job_id = new_job_id(stem) if op_id is None else _job_id_of(stem, op_id)
    request = StartJob(job_id=job_id, spec=spec, op_id=op_id or new_op_id())
    return (await ask(session, request, JobReply, timeout_s=timeout_s)).job


async def was_started(session: Session, stem: str, op_id: OpId | None) -> bool:
    """Whether this operation has started its job before: what stands in the way of starting it is none then."""
    if op_id is None:
        return False
    try:
        await get_job(session, _job_id_of(stem, op_id))
    except ConsoleError as error:
        if error.info.code is not ErrorCode.NOT_FOUND:
            raise
        return False
    return True


def _job_id_of(stem: str, op_id: OpId) -> JobId:
    if not is_job_id(op_id) or len(op_id) > LONGEST_KEY:
        raise UsageError(
            f"{op_id!r} is no key: lower-case letters, digits and dashes, at most {LONGEST_KEY} characters"
        )
    return keyed_job_id(stem, op_id)


async def follow_job(session: Session, job_id: JobId) -> AsyncGenerator[Job | ProgressRecord | LinkState, None]:
    """A job's changes and progress from its beginning until it is over; survives losses of the link, which it yields."""
    job = await get_job(session, job_id)
    yield job
    if is_over(job.state):
        return
    await watch(session, progress={job_id: 0})
    seen = 0
    async with aclosing(session.events()) as events:
        async for event in events:
            match event:
                case JobChanged(job=changed) if changed.job_id == job_id:
                    if is_over(changed.state):
                        # The state may overtake the last records, which come from another stream.
                        async for record in _remaining_progress(session, job_id, seen):
                            yield record
                        yield changed
                        return
                    yield changed
                case ProgressMade(job_id=source, record=record) if source == job_id:
                    seen = record.seq
                    yield record
                case Closed(error=error) if error is not None:
                    raise HostError(error)
                case Closed():
                    return
                case event if isinstance(event, LinkState):
                    yield event
                case _:
                    pass


async def _remaining_progress(session: Session, job_id: JobId, seen: int) -> AsyncGenerator[ProgressRecord, None]:
    while records := await read_progress(session, job_id, after_seq=seen):
        for record in records:
            yield record
        seen = records[-1].seq


async def read_verdict(session: Session, job_id: JobId) -> VerdictReport:
    """The verdict of a run that reached it."""
    return await ask(session, ReadVerdict(job_id=job_id), VerdictReport)


async def read_journal(session: Session, *, since: float | None = None, limit: int = MOST_ENTRIES) -> JournalPage:
    """The newest `limit` changes that anybody asked of the host, newest first, refusals included."""
    entries: list[JournalEntry] = []
    while True:
        request = ReadJournal(since=since, limit=limit - len(entries), skip=len(entries))
        page = await ask(session, request, JournalPage)
        entries += page.entries
        if not page.entries or not page.omitted or len(entries) >= limit:
            return JournalPage(entries=entries, omitted=page.omitted)


def agent_policy(name: str) -> Policy:
    """What AI agents may do on the host `name`; on this machine's own hosts, which hold nothing of anybody else's, all of it."""
    configured = load_hosts().get(name)
    return "full" if configured is None else configured.agents


def list_hosts() -> dict[str, HostConfig]:
    """The hosts of roost.toml; the embedded host is always there besides."""
    return load_hosts()


def ask_passphrases_with(ask: Ask | None) -> None:
    """From now on, in all that is started from here, `ask` puts the question for the passphrase of an encrypted key to a person, None to nobody."""
    ask_passphrase.set(ask)


def keep_hosts_warm() -> None:
    """From now on, in all that is started from here, hosts are reached through their background sessions, which begin when they are missed."""
    _stays_warm.set(True)


def report_beginnings_with(report: Callable[[str], None]) -> None:
    """From now on, in all that is started from here, `report` is told of a demo host that begins because it was named."""
    demo.report.set(report)
