"""`roost plan` and `roost run`."""

from typing import Annotated, Literal

import typer

from console import operations
from console.cli.jobs import exit_code_of, follow_until_over
from console.cli.options import ACTOR, Host, Json, Key, Set, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.text import plan_lines, verdict_lines
from console.config.hosts import price_of
from console.documents import StartedRun, priced
from console.errors import ConsoleError, UsageError
from remote.protocol.jobs import Finished, Job
from remote.protocol.reports import RunPlan, VerdictReport

RunFile = Annotated[
    str, typer.Argument(metavar="RUN", help="A run file (TOML) or the name of a preset, such as 'embedded'.")
]


Wait = Annotated[bool, typer.Option("--wait", help="Follow the run to its end and print the verdict.")]
Require = Annotated[
    Literal["promote"] | None, typer.Option("--require", help="With --wait: exit 5 unless the verdict is this.")
]


def read_overrides(settings: list[str]) -> dict[str, str]:
    """What `--set` says, as key and value; raises UsageError for one that is no KEY=VALUE."""
    overrides: dict[str, str] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {setting!r} is not KEY=VALUE", hint="for example --set training.steps=20")
        overrides[key] = value
    return overrides


def plan(source: RunFile, host: Host = operations.EMBEDDED, settings: Set = [], as_json: Json = False) -> None:  # noqa: B006, FBT002
    """Show what a run would do on the host, without doing it."""

    async def work() -> RunPlan:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.plan_run(session, document, overrides)

    result = priced(execute(work(), as_json=as_json), price_of(host))
    if as_json:
        print_document("plan", result)
    else:
        print_text("\n".join(plan_lines(result, result.cost)))
    if result.problems:
        raise typer.Exit(5)


def run(
    source: RunFile,
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `roost plan`: show it and start nothing.")] = False,  # noqa: FBT002
    wait: Wait = False,  # noqa: FBT002
    require: Require = None,
    timeout: Timeout = None,
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Start a run on the host; it goes on without this command."""
    if dry_run:
        plan(source, host, settings, as_json)
        return

    async def work() -> tuple[Job, VerdictReport | None]:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            planned = await operations.plan_run(session, document, overrides)
            job = await operations.start_run(session, planned, op_id=key)
            narrate(f"started {job.job_id} on {host}")
            return await _follow(session, job, wait=wait, timeout_s=timeout)

    if require and not wait:
        raise typer.BadParameter("--require needs --wait")
    _end(execute(work(), as_json=as_json), wait=wait, require=require, as_json=as_json)


def apply(
    fingerprint: Annotated[
        str, typer.Option("--plan", metavar="FINGERPRINT", help="What `roost plan` said at its end.")
    ],
    host: Host = operations.EMBEDDED,
    wait: Wait = False,  # noqa: FBT002
    require: Require = None,
    timeout: Timeout = None,
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Start the run of a plan exactly as it was shown, or refuse and say what changed since (exit 5).

    A plan is one operation: applied again, it is the same job, unless --key says otherwise.
    """

    async def work() -> tuple[Job, VerdictReport | None]:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations.apply_plan(session, fingerprint, op_id=key)
            narrate(f"started {job.job_id} on {host}")
            return await _follow(session, job, wait=wait, timeout_s=timeout)

    if require and not wait:
        raise typer.BadParameter("--require needs --wait")
    _end(execute(work(), as_json=as_json), wait=wait, require=require, as_json=as_json)


async def _follow(
    session: operations.Session, job: Job, *, wait: bool, timeout_s: float | None
) -> tuple[Job, VerdictReport | None]:
    if not wait:
        return job, None
    job = await follow_until_over(session, job.job_id, timeout_s=timeout_s)
    return job, await _verdict(session, job)


def _end(found: tuple[Job, VerdictReport | None], *, wait: bool, require: str | None, as_json: bool) -> None:
    job, verdict = found
    if as_json:
        print_document("run", StartedRun(job=job, verdict=verdict))
    elif verdict is not None:
        print_text("\n".join(verdict_lines(verdict)))
    else:
        print_text(job.job_id)
    if not wait:
        return
    code = exit_code_of(job)
    if code == 0 and require is not None and (verdict is None or verdict.decision != require):
        narrate(f"roost: the verdict is {verdict.decision if verdict else 'missing'}, required was {require}")
        code = 5
    raise typer.Exit(code)


async def _verdict(session: operations.Session, job: Job) -> VerdictReport | None:
    if not isinstance(job.state, Finished) or job.state.outcome != "succeeded":
        return None
    try:
        return await operations.read_verdict(session, job.job_id)
    except ConsoleError as error:
        narrate(f"roost: {error.info.message}")
        return None
