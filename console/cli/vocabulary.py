"""`roost vocabulary`: validate, inspect, build, coverage, copy, convert."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from console import operations, operations_vocabulary
from console.cli.agreement import agreement
from console.cli.jobs import JobName, carry_on, exit_code_of
from console.cli.options import ACTOR, Host, Json, Key, NoWait, TemplateOption, Timeout, template_variables
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.cli.vocabulary_text import copy_plan_lines, coverage_lines, inspection_lines, mapping_lines
from console.documents import MadeMapping, MeasuredCoverage
from console.errors import ConsoleError
from console.state.coverage import is_enough
from console.state.mappings import CopyPlan
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.jobs import Job, is_over
from remote.protocol.mappings import (
    CoverageReport,
    MappingBuildSpec,
    MappingConvertSpec,
    MappingCoverageSpec,
    TokenSource,
    WrittenLayout,
)
from remote.protocol.reports import MappingInspection, MappingReport

app = Verbs(
    help="Draft-vocabulary mappings: validate, inspect, build, coverage, copy, convert.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[
    str, typer.Argument(metavar="MAPPING", help="Its directory or file on the host, absolute or below ROOT.")
]
Target = Annotated[str | None, typer.Option("--target", metavar="MODEL", help="The target's directory on the host.")]
Sources = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="PATH[=WEIGHT]",
        help="A store, a JSONL file of conversations, or counts that were kept, on the host; each token counts WEIGHT times.",
    ),
]
MaxLength = Annotated[
    int | None, typer.Option("--max-length", min=1, help="Cut conversations after this many tokens, as a run does.")
]


@app.command()
def validate(
    mapping: Directory,
    target: Target = None,
    drafter: Annotated[
        str | None, typer.Option("--drafter", metavar="DIR", help="Compare it with the buffers of this drafter.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="DIR", help="Compare it with the manifest of this store.")
    ] = None,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Check a mapping on the host, in any trainer's layout; exit 5 when it must not be used."""

    async def work() -> MappingReport:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_vocabulary.validate_mapping(
                session, mapping, target_model=target, drafter=drafter, store=store
            )

    report = execute(work(), as_json=as_json)
    if as_json:
        print_document("mapping", report)
    else:
        print_text("\n".join(mapping_lines(report)))
    if not report.valid:
        raise typer.Exit(5)


@app.command()
def inspect(
    mapping: Directory,
    target: Target = None,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show all that is known of a mapping: findings, where it came from, who else has it, backups; exit 5 as validate does."""

    async def work() -> MappingInspection:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_vocabulary.inspect_mapping(session, mapping, target_model=target)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("inspection", found)
    else:
        print_text("\n".join(inspection_lines(found)))
    if not found.report.valid:
        raise typer.Exit(5)


@app.command()
def build(
    destination: Annotated[str, typer.Argument(metavar="DST", help="Where the mapping goes, on the host.")],
    sources: Sources,
    size: Annotated[int, typer.Option("--size", metavar="D", min=1, help="How many tokens a drafter may propose.")],
    target: Target = None,
    force: Annotated[list[int], typer.Option("--force", metavar="ID", min=0, help="Take this token in any case.")] = [],  # noqa: B006
    force_special: Annotated[  # noqa: FBT002
        bool, typer.Option("--force-special", help="Take the target's special tokens in any case.")
    ] = False,
    counts: Annotated[
        str | None, typer.Option("--counts", metavar="DIR", help="Where the counts are kept; default: DST-counts.")
    ] = None,
    max_length: MaxLength = None,
    template: TemplateOption = [],  # noqa: B006
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Build a mapping from the answers in stores, conversations or kept counts, merged with weights.

    Conversations are read as a run would: by the target's template, with --template and --max-length as the run has them.
    Takes the D most frequent tokens, of equally frequent ones the lower id; with fewer than D of them the lowest ids fill up.
    """
    spec = MappingBuildSpec(
        sources=[_source(text) for text in sources],
        draft_vocab_size=size,
        destination=destination,
        counts=counts or f"{destination.rstrip('/')}-counts",
        target_model=target,
        forced=force,
        force_special=force_special,
        max_length=max_length,
        chat_template_kwargs=template_variables(template),
    )
    _carry_out(
        "build",
        host,
        lambda session: operations_vocabulary.start_mapping_build(session, spec, op_id=key),
        destination,
        timeout_s=timeout,
        no_wait=no_wait,
        as_json=as_json,
    )


@app.command()
def coverage(
    sources: Sources,
    mapping: Annotated[
        str | None, typer.Argument(metavar="[MAPPING]", help="As for validate; left out, the best of --size.")
    ] = None,
    target: Target = None,
    size: Annotated[int | None, typer.Option("--size", metavar="D", min=1, help="Without a mapping: its size.")] = None,
    at: Annotated[list[int], typer.Option("--at", metavar="D", min=1, help="A size on the curve; several.")] = [],  # noqa: B006
    missing: Annotated[int, typer.Option("--missing", min=0, max=1000, help="How many missing tokens to list.")] = 20,
    proposals: Annotated[
        int, typer.Option("--proposals", min=1, help="Proposals a verification, for the bound on acceptance.")
    ] = 3,
    minimum: Annotated[
        float | None, typer.Option("--minimum", min=0.0, max=1.0, help="Exit 5 below this share, such as 0.98.")
    ] = None,
    max_length: MaxLength = None,
    template: TemplateOption = [],  # noqa: B006
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Say how much of given answers a mapping covers: the curve, what is missing, the bound on acceptance that follows."""
    if mapping is None and size is None:
        raise typer.BadParameter("name a mapping, or the size of one with --size")
    if minimum == 0:
        raise typer.BadParameter("--minimum 0 asks for nothing")
    spec = MappingCoverageSpec(
        sources=[_source(text) for text in sources],
        target_model=target,
        mapping=mapping,
        draft_vocab_size=size,
        curve=at,
        missing=missing,
        proposals=proposals,
        max_length=max_length,
        chat_template_kwargs=template_variables(template),
        minimum_coverage=minimum,
    )

    async def work() -> tuple[Job, CoverageReport | None]:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_vocabulary.start_mapping_coverage(session, spec, op_id=key)
            job = await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)
            return job, await operations_vocabulary.read_coverage(session, job.job_id) if _succeeded(job) else None

    job, report = execute(work(), as_json=as_json)
    if as_json:
        print_document("coverage", MeasuredCoverage(job=job, report=report))
    elif report is not None:
        print_text("\n".join(coverage_lines(report)))
    elif not is_over(job.state):
        print_text(job.job_id)
    raise typer.Exit(exit_code_of(job) or (0 if report is None or is_enough(report) else 5))


@app.command()
def figures(job_id: JobName, host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Show what `roost vocabulary coverage` measured; exit 5 where that is less than its --minimum."""

    async def work() -> CoverageReport:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_vocabulary.read_coverage(session, job_id)

    report = execute(work(), as_json=as_json)
    if as_json:
        print_document("coverage_report", report)
    else:
        print_text("\n".join(coverage_lines(report)))
    if not is_enough(report):
        raise typer.Exit(5)


@app.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="The mapping's directory on the host, absolute or below ROOT.")
    ],
    destination: Annotated[str, typer.Argument(metavar="DST", help="The name that it gets there, or on --to.")],
    to: Annotated[str | None, typer.Option("--to", metavar="HOST", help="The host that it goes to.")] = None,
    host: Host = operations.EMBEDDED,
    replace: Annotated[bool, typer.Option("--replace", help="Put another mapping at DST aside.")] = False,  # noqa: FBT002
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="DST", help="With --replace: DST again, to do it unasked.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what lies at DST and what would be done.")] = False,  # noqa: FBT002
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Copy a mapping on a host or to another: validated, hashed, published whole; never over a different one unless told."""

    if dry_run:
        _show_copy_plan(source, host, destination, to or host, replace=replace, as_json=as_json)
        return

    async def arrive(session: operations.Session) -> Job:
        async with operations.open_host(host, actor=ACTOR) as sender:
            plan = await operations_vocabulary.plan_mapping_copy(sender, source, session, destination)
            operations_vocabulary.refuse_copy(plan, replace=replace)
            landed, origin = source, None
            with _replacing(
                plan, confirm, again=f"{_copy_command(source, host, destination, to)} --confirm {destination}"
            ):
                if to is not None:
                    landed, origin = await operations_vocabulary.bring_mapping(sender, source, session, report=narrate)
                return await operations_vocabulary.start_mapping_copy(
                    session, landed, destination, replace=replace, origin=origin, op_id=key
                )

    _carry_out("copy", to or host, arrive, destination, timeout_s=timeout, no_wait=no_wait, as_json=as_json)


def _copy_command(source: str, host: str, destination: str, to: str | None) -> str:
    other = "" if to is None else f" --to {to}"
    return f"roost vocabulary copy {source} {destination} --host {host}{other} --replace"


def _replacing(plan: CopyPlan, confirm: str | None, *, again: str) -> AbstractContextManager[None]:
    """A person's yes where a copy puts another mapping aside; nothing is asked where it does not."""
    if not plan.replaces:
        return nullcontext()
    return agreement(
        f"Put the other mapping at {plan.destination} on {plan.host} aside? It is kept beside the new one.",
        said=confirm,
        expected=plan.destination,
        message=f"another mapping at {plan.destination} on {plan.host} would be put aside",
        again=again,
    )


def _show_copy_plan(source: str, host: str, destination: str, to: str, *, replace: bool, as_json: bool) -> None:
    """Exit 5 where the copy would be refused."""

    async def work() -> CopyPlan:
        async with operations.open_host(host, actor=ACTOR) as sender, operations.open_host(to, actor=ACTOR) as receiver:
            return await operations_vocabulary.plan_mapping_copy(sender, source, receiver, destination)

    plan = execute(work(), as_json=as_json)
    if as_json:
        print_document("copy_plan", plan)
    else:
        print_text("\n".join(copy_plan_lines(plan)))
    if plan.problems or (plan.replaces and not replace):
        raise typer.Exit(5)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A mapping in any layout, on the host.")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Where it goes, on the host.")],
    layout: Annotated[WrittenLayout, typer.Option("--layout", help="Whose files are written.")] = "roost",
    target: Target = None,
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Write a mapping in another trainer's layout, or put right what only lies there wrongly (int32, byte order, order)."""
    spec = MappingConvertSpec(source=source, destination=destination, layout=layout, target_model=target)
    _carry_out(
        "convert",
        host,
        lambda session: operations_vocabulary.start_mapping_convert(session, spec, op_id=key),
        destination,
        timeout_s=timeout,
        no_wait=no_wait,
        as_json=as_json,
    )


def _carry_out(
    kind: str,
    host: str,
    start: Callable[[operations.Session], Awaitable[Job]],
    destination: str,
    *,
    timeout_s: float | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Start a job, follow it unless told otherwise, show the mapping that it made."""

    async def work() -> tuple[Job, MappingReport | None]:
        async with operations.open_host(host, actor=ACTOR) as session:
            try:
                async with asyncio.timeout(timeout_s):
                    job = await start(session)
            except TimeoutError:
                raise _not_there_yet(kind, timeout_s) from None
            job = await carry_on(session, job, no_wait=no_wait, timeout_s=timeout_s)
            made = await operations_vocabulary.validate_mapping(session, destination) if _succeeded(job) else None
            return job, made

    job, report = execute(work(), as_json=as_json)
    if as_json:
        print_document(kind, MadeMapping(job=job, mapping=report))
    elif report is not None:
        print_text("\n".join(mapping_lines(report)))
    elif not is_over(job.state):
        print_text(job.job_id)
    raise typer.Exit(exit_code_of(job))


def _succeeded(job: Job) -> bool:
    return is_over(job.state) and exit_code_of(job) == 0


def _not_there_yet(kind: str, timeout_s: float | None) -> ConsoleError:
    return ConsoleError(
        ErrorInfo(
            code=ErrorCode.TIMEOUT,
            message=f"the {kind} was not begun after {timeout_s:g} s: the mapping is still on its way",
            hint="ask for the same again: it goes on where it broke off",
            retryable=True,
        )
    )


def _source(text: str) -> TokenSource:
    path, _, weight = text.rpartition("=")
    try:
        share = float(weight) if path else 1.0
    except ValueError:
        return TokenSource(path=text)
    if not 0 < share < float("inf"):
        raise typer.BadParameter(f"{text}: a weight is a number above 0")
    return TokenSource(path=path or text, weight=share)
