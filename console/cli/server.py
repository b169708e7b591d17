"""`roost server`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from console import operations, operations_server
from console.cli.jobs import JobName, exit_code_of, follow_until_over
from console.cli.options import ACTOR, Host, Json, Key, Set, Timeout, finite
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.run import RunFile, read_overrides
from console.cli.server_text import benchmark_lines, server_lines, server_plan_lines
from console.cli.tuning import tune, tuning
from console.cli.verbs import Verbs
from console.documents import ServerCommands, StartedBenchmark, StartedServer, http_answer
from console.errors import UsageError
from console.link.engine_http import HttpReply
from console.operations_waiting import timed_out
from console.state.sanitize import sanitize
from console.state.units import format_duration
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.jobs import Job
from remote.protocol.progress import ServerReady
from remote.protocol.reports import RunPlan, ServerPlan
from remote.protocol.run import BenchmarkConfig

app = Verbs(
    help="Inference servers: their exact commands, start one, measure it, tune it, ask it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(short_help="Print the exact commands of a run's servers.")
def plan(source: RunFile, host: Host = operations.EMBEDDED, settings: Set = [], as_json: Json = False) -> None:  # noqa: B006, FBT002
    """Print the exact command and environment of each server of a run, checked against the installed engine's own help."""

    async def work() -> RunPlan:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.plan_run(session, document, overrides)

    found = execute(work(), as_json=as_json)
    if as_json:
        servers = [stage for stage in found.stages if stage.stage in ("server", "serving")]
        print_document("server_plan", ServerCommands(servers=servers, problems=found.problems))
    else:
        print_text("\n".join(server_lines(found)))
    if found.problems:
        raise typer.Exit(5)


@app.command(short_help="Start a server that stays until it is stopped.")
def start(
    source: RunFile,
    drafter: Annotated[bool, typer.Option("--drafter", help="Serve with the drafter that the run trained.")] = False,  # noqa: FBT002
    capture: Annotated[  # noqa: FBT002
        bool, typer.Option("--capture", help="The server that captures hidden states, for `roost extraction verify`.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and start nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Follow the launch until the server answers.")] = False,  # noqa: FBT002
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    timeout: Timeout = None,
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Start the server that a run's evaluation measures; it serves until `roost stop`, whoever goes."""

    async def work() -> tuple[ServerPlan, Job | None, ServerReady | None]:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            found = await operations_server.plan_server(session, document, overrides, drafter=drafter, capture=capture)
            if dry_run:
                return found, None, None
            job = await operations_server.start_server(session, found, op_id=key)
            narrate(f"started {job.job_id} on {host}; `roost stop {job.job_id} --confirm {job.job_id}` ends it")
            return found, job, await _ready(session, job, timeout) if wait else None

    found, job, ready = execute(work(), as_json=as_json)
    if as_json:
        print_document("server", StartedServer(plan=found, job=job, ready=ready))
    elif job is None:
        print_text("\n".join(server_plan_lines(found)))
    else:
        print_text(job.job_id)
    if job is None and found.problems:
        raise typer.Exit(5)


async def _ready(session: operations.Session, job: Job, timeout_s: float | None) -> ServerReady:
    try:
        async with asyncio.timeout(timeout_s):
            ready = await operations_server.wait_until_ready(session, job)
    except TimeoutError:
        raise timed_out(f"the server of {job.job_id} did not answer", job.job_id, timeout_s, until="ready") from None
    narrate(f"{job.job_id} answers after {format_duration(ready.startup_s)}")
    return ready


@app.command(short_help="Measure a server with chat prompts.")
def bench(
    job_id: JobName,
    prompts: Annotated[
        str, typer.Option("--prompts", metavar="FILE", help="Chat prompts on the host: JSONL as MT-Bench has it.")
    ],
    concurrency: Annotated[
        list[int] | None,
        typer.Option("--concurrency", "-c", min=1, max=4096, help="Requests at a time; again for more levels."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="So many prompts of the file; all unless said.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=100, help="How often each prompt is asked.")] = 3,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=2, help="The longest answer.")] = 128,
    warmup: Annotated[int, typer.Option("--warm-up", min=0, help="Prompts that are asked before it counts.")] = 2,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end and print the figures.")] = False,  # noqa: FBT002
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Measure the server of a job: decode and whole-server rates, time to the first token, acceptance; medians and spread."""
    settings = BenchmarkConfig(
        concurrency=concurrency or [1],
        prompts=count,
        repeats=repeats,
        max_tokens=max_tokens,
        warmup_prompts=warmup,
    )

    async def work() -> tuple[Job, BenchmarkReport | None]:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_server.start_benchmark(session, job_id, prompts, settings, op_id=key)
            narrate(f"started {job.job_id} on {host}")
            if not wait:
                return job, None
            job = await follow_until_over(session, job.job_id, timeout_s=timeout)
            done = exit_code_of(job) == 0
            return job, await operations_server.read_benchmark(session, job.job_id) if done else None

    job, report = execute(work(), as_json=as_json)
    if as_json:
        print_document("benchmark", StartedBenchmark(job=job, report=report))
    else:
        print_text("\n".join(benchmark_lines(report)) if report else job.job_id)
    if wait:
        raise typer.Exit(exit_code_of(job))


@app.command(short_help="Show the figures of a measurement.")
def figures(job_id: JobName, host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Show what `roost server bench` measured."""

    async def work() -> BenchmarkReport:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_server.read_benchmark(session, job_id)

    report = execute(work(), as_json=as_json)
    if as_json:
        print_document("benchmark_report", report)
    else:
        print_text("\n".join(benchmark_lines(report)))


app.command(short_help="Find the settings with which a server is fastest.")(tune)
app.command(short_help="Show what a tuning found, or write it into the run file.")(tuning)


@app.command(short_help="Send one HTTP request and print the body.")
def request(
    job_id: JobName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Such as /v1/models, /get_server_info or /metrics.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="JSON|@FILE", help="POST this JSON, or that of a file.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", callback=finite, help="Seconds to wait for the answer.")
    ] = operations_server.REQUEST_TIMEOUT_S,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Send one HTTP request to the server of a job and print the body; exit 1 for a status of 400 or more."""

    async def work() -> HttpReply:
        body = None if data is None else _body(data)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_server.request_server(session, job_id, path, body=body, timeout_s=timeout)

    reply = execute(work(), as_json=as_json)
    _print(reply, as_json=as_json)
    if reply.status >= 400:
        narrate(f"roost: the server of {job_id} answered {path} with status {reply.status}")
        raise typer.Exit(1)


def _body(data: str) -> bytes:
    try:
        body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
        json.loads(body)
    except OSError as error:
        raise UsageError(f"cannot read {data[1:]}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"what --data gives is no JSON: {error}") from error
    return body


def _print(reply: HttpReply, *, as_json: bool) -> None:
    text = reply.body.decode(errors="replace")
    if as_json:
        print_document("reply", http_answer(reply.status, reply.content_type, text))
    elif sys.stdout.isatty():
        sys.stdout.write(sanitize(text) + ("" if text.endswith("\n") else "\n"))
    else:
        sys.stdout.buffer.write(reply.body)
    sys.stdout.flush()
