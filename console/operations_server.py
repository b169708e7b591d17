"""Servers: to plan, start, measure and tune one, and to ask one that runs through the host's connection."""

from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from console.config.run_file import write_settings
from console.errors import ConsoleError, UsageError
from console.link.engine_http import HttpReply, exchange
from console.operations import PLAN_TIMEOUT_S, Session, ask, follow_job, get_job, read_progress, start_job, was_started
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId, OpId
from remote.protocol.jobs import Job, is_over
from remote.protocol.progress import ProgressRecord, ServerReady, ServerRestarting
from remote.protocol.reports import ServerPlan
from remote.protocol.requests import (
    PlanServer,
    PlanTuning,
    ReadBenchmark,
    ReadTuning,
)
from remote.protocol.run import BenchmarkConfig
from remote.protocol.specs import (
    BenchmarkSpec,
    ServerSpec,
    TuningSpec,
)
from remote.protocol.tuning import Settings, TuningPlan, TuningReport

REQUEST_TIMEOUT_S = 60.0


async def request_server(
    session: Session, job_id: JobId, path: str, *, body: bytes | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> HttpReply:
    """GET `path` from the server of a job, or POST a JSON body to it.

    Raises a precondition where the server is not up yet, has ended, or the job is no server; ConnectionFailed where it does
    not answer.
    """
    if not path.startswith("/") or any(not 0x21 <= ord(character) <= 0x7E for character in path):
        raise UsageError(f"{path!r} is no path of a server", hint="such as /v1/models, /get_server_info or /metrics")
    ready = (await running_server(session, job_id)).ready
    port = urlsplit(ready.url).port
    if port is None:
        raise unmet(f"the server of {job_id} reported no port: {ready.url}")
    stream = await session.open_port(port)
    return await exchange(stream, f"127.0.0.1:{port}", path, body=body, timeout_s=timeout_s)


async def plan_server(
    session: Session,
    document: str,
    overrides: dict[str, str] | None = None,
    *,
    drafter: bool = False,
    capture: bool = False,
) -> ServerPlan:
    """Resolve on the host the server that a run's evaluation measures, or that captures: its command, and what stands in the way."""
    request = PlanServer(document=document, overrides=overrides or {}, drafter=drafter, capture=capture)
    return await ask(session, request, ServerPlan, timeout_s=PLAN_TIMEOUT_S)


async def start_server(session: Session, plan: ServerPlan, *, op_id: OpId | None = None) -> Job:
    """Start a planned server as a job of its own, which serves until it is stopped; a plan with problems is refused."""
    stem = f"server-{plan.run}"
    if plan.problems and not await was_started(session, stem, op_id):
        raise unmet(
            f"the server of {plan.run} cannot start: {'; '.join(plan.problems)}",
            hint="mend what is named, or change the run file",
        )
    return await start_job(session, stem, plan.spec, op_id=op_id)


async def wait_until_ready(session: Session, job: Job) -> ServerReady:
    """Until the server of `job` answers; raises a precondition when it ends before that."""
    async with aclosing(follow_job(session, job.job_id)) as events:
        async for event in events:
            match event:
                case ProgressRecord(event=ServerReady() as ready):
                    return ready
                case Job() if is_over(event.state):
                    break
                case _:
                    pass
    raise unmet(f"the server of {job.job_id} ended before it was up", next_command=f"roost status {job.job_id}")


async def start_benchmark(
    session: Session, server_job_id: JobId, prompts: str, settings: BenchmarkConfig, *, op_id: OpId | None = None
) -> Job:
    """Start a measurement of a server that runs, with the chat prompts of a file on the host, as a job.

    The host refuses one of a server that is measured already, or that a run works with.
    """
    server = await running_server(session, server_job_id)
    if not isinstance(server.job.spec, ServerSpec):
        raise unmet(f"{server_job_id} does not say how it serves", next_command="roost jobs")
    spec = BenchmarkSpec(
        url=server.ready.url,
        server_job_id=server_job_id,
        server=server.job.spec,
        prompts=prompts,
        benchmark=settings,
    )
    return await start_job(session, "benchmark", spec, op_id=op_id)


async def read_benchmark(session: Session, job_id: JobId) -> BenchmarkReport:
    """The figures of a benchmark that is done."""
    return await ask(session, ReadBenchmark(job_id=job_id), BenchmarkReport)


async def plan_tuning(session: Session, document: str, overrides: dict[str, str] | None = None) -> TuningPlan:
    """Resolve on the host what a run file's tuning would try, in how many rounds."""
    request = PlanTuning(document=document, overrides=overrides or {})
    return await ask(session, request, TuningPlan, timeout_s=PLAN_TIMEOUT_S)


async def start_tuning(session: Session, plan: TuningPlan, *, op_id: OpId | None = None) -> Job:
    """Start a planned tuning as a job; a plan with problems is refused. Started again, it goes on where it ended."""
    stem = f"tuning-{plan.run.name}"
    if plan.problems and not await was_started(session, stem, op_id):
        raise unmet(
            f"the tuning of {plan.run.name} cannot start: {'; '.join(plan.problems)}",
            hint="mend what is named, or change the run file",
        )
    return await start_job(session, stem, TuningSpec(run=plan.run), op_id=op_id)


async def read_tuning(session: Session, job_id: JobId) -> TuningReport:
    """What a tuning that is done found."""
    return await ask(session, ReadTuning(job_id=job_id), TuningReport)


def apply_winner(report: TuningReport, path: Path) -> Settings:
    """Write the winner's settings into a run file, and nothing else of it; the settings.

    Raises a precondition where there is no winner, UsageError where the file cannot be read or written.
    """
    won = next((trial for trial in report.trials if trial.number == report.winner), None)
    if won is None:
        raise unmet(f"there is nothing to write: {report.reason}")
    write_settings(path, won.settings)
    return won.settings


class RunningServer(NamedTuple):
    """The job of a server that answers, and where."""

    job: Job
    ready: ServerReady


async def running_server(session: Session, job_id: JobId) -> RunningServer:
    """The server of a job; raises a precondition where it is none, has ended or is not up."""
    job = await get_job(session, job_id)
    if job.agent != "server":
        raise unmet(f"{job_id} is no server but a {job.agent} job", next_command="roost jobs")
    if is_over(job.state):
        raise unmet(f"the server of {job_id} has ended", next_command=f"roost status {job_id}")
    ready: ServerReady | None = None
    died = False
    seen = 0
    while records := await read_progress(session, job.job_id, after_seq=seen):
        seen = records[-1].seq
        for record in records:
            match record.event:
                case ServerReady() as up:
                    ready, died = up, False
                case ServerRestarting():
                    ready, died = None, True
                case _:
                    pass
    if ready is None:
        said = "died and is launched again" if died else "is not up yet"
        raise unmet(f"the server of {job.job_id} {said}", next_command=f"roost logs {job.job_id} --follow")
    return RunningServer(job, ready)


def unmet(message: str, *, hint: str | None = None, next_command: str | None = None) -> ConsoleError:
    """A precondition that does not hold."""
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=message, hint=hint, next_command=next_command))
