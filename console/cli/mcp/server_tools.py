"""Tools for inference servers: plan, start, measure, tune; stop_job ends one."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from console import operations_server
from console.cli.mcp.arguments import Arguments, Key, OfJob, RunFile
from console.cli.mcp.tool import Tell, Tool, looks, starts
from console.documents import StartedBenchmark, StartedServer, StartedTuning, http_answer
from console.operations import Session
from remote.protocol.ids import JobId
from remote.protocol.run import BenchmarkConfig


class PlanningServer(RunFile, frozen=True, kw_only=True):
    """The server of a run's evaluation, or the one that captures."""

    drafter: Annotated[bool, Meta(description="Serve with the drafter that the run trained.")] = False
    capture: Annotated[bool, Meta(description="The server that captures hidden states.")] = False


class StartingServer(PlanningServer, frozen=True, kw_only=True):
    """The same, to be started."""

    key: Key


class StartingTuning(RunFile, frozen=True, kw_only=True):
    """A run file with a [tuning], to be started."""

    key: Key


class Measuring(Arguments, frozen=True, kw_only=True):
    """A server that runs, and what to ask of it."""

    job_id: Annotated[JobId, Meta(description="The server's job.")]
    prompts: Annotated[str, Meta(description="Chat prompts on the host: JSONL as MT-Bench has it.")]
    settings: BenchmarkConfig = msgspec.field(default_factory=BenchmarkConfig)
    key: Key


class Requesting(Arguments, frozen=True, kw_only=True):
    """A server that runs, and one HTTP request to it."""

    job_id: Annotated[JobId, Meta(description="The server's job.")]
    path: Annotated[str, Meta(description="Such as /v1/models, /get_server_info or /metrics.")]
    body: Annotated[Any, Meta(description="POST this as JSON; null: GET.")] = None


async def _request_server(session: Session, asked: Requesting, _: Tell) -> object:
    body = None if asked.body is None else msgspec.json.encode(asked.body)
    reply = await operations_server.request_server(session, asked.job_id, asked.path, body=body)
    return http_answer(reply.status, reply.content_type, reply.body.decode(errors="replace"))


async def _plan_server(session: Session, asked: PlanningServer, _: Tell) -> object:
    plan = await operations_server.plan_server(
        session, asked.run_file, asked.overrides, drafter=asked.drafter, capture=asked.capture
    )
    return StartedServer(plan=plan, job=None, ready=None)


async def _start_server(session: Session, asked: StartingServer, _: Tell) -> object:
    plan = await operations_server.plan_server(
        session, asked.run_file, asked.overrides, drafter=asked.drafter, capture=asked.capture
    )
    return StartedServer(
        plan=plan, job=await operations_server.start_server(session, plan, op_id=asked.key), ready=None
    )


async def _plan_tuning(session: Session, asked: RunFile, _: Tell) -> object:
    plan = await operations_server.plan_tuning(session, asked.run_file, asked.overrides)
    return StartedTuning(plan=plan, job=None, report=None)


async def _start_tuning(session: Session, asked: StartingTuning, _: Tell) -> object:
    plan = await operations_server.plan_tuning(session, asked.run_file, asked.overrides)
    job = await operations_server.start_tuning(session, plan, op_id=asked.key)
    return StartedTuning(plan=plan, job=job, report=None)


async def _read_tuning(session: Session, asked: OfJob, _: Tell) -> object:
    return await operations_server.read_tuning(session, asked.job_id)


async def _start_benchmark(session: Session, asked: Measuring, _: Tell) -> object:
    job = await operations_server.start_benchmark(session, asked.job_id, asked.prompts, asked.settings, op_id=asked.key)
    return StartedBenchmark(job=job, report=None)


async def _read_benchmark(session: Session, asked: OfJob, _: Tell) -> object:
    return await operations_server.read_benchmark(session, asked.job_id)


SERVER_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="request_server",
        description="One HTTP request to a job's server, through the host's connection: GET, or POST with a body.",
        needs="operate",
        takes=Requesting,
        document="reply",
        work=_request_server,
        is_idempotent=False,
        can_be_asked=False,
    ),
    looks(
        "plan_server",
        "The exact command of a run's server, checked against the engine, and what stands in the way. Starts nothing.",
        PlanningServer,
        "server",
        _plan_server,
    ),
    starts(
        "start_server",
        "Start the server that a run's evaluation measures; it serves until stop_job. wait_for_job until `ready` waits until it answers.",
        StartingServer,
        "server",
        _start_server,
    ),
    looks(
        "plan_tuning",
        "What a run file's [tuning] would try, in how many rounds. Starts nothing.",
        RunFile,
        "tuning",
        _plan_tuning,
    ),
    starts(
        "start_tuning",
        "Try the settings that a run file's [tuning] names, one server after the other, as a job; read_tuning has the winner.",
        StartingTuning,
        "tuning",
        _start_tuning,
    ),
    looks("read_tuning", "What a tuning found.", OfJob, "tuning_report", _read_tuning),
    starts(
        "start_benchmark",
        "Measure a server that runs with chat prompts, as a job; read_benchmark has the figures.",
        Measuring,
        "benchmark",
        _start_benchmark,
    ),
    looks(
        "read_benchmark",
        "Decode and server rates, first token, acceptance, with spread.",
        OfJob,
        "benchmark_report",
        _read_benchmark,
    ),
)
"""Tools for servers."""
