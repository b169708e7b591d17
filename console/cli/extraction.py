"""`roost extraction`."""

from typing import Annotated, NoReturn

import typer

from console import operations, operations_extraction, operations_telemetry
from console.cli.extraction_text import extraction_plan_lines, extraction_report_lines
from console.cli.jobs import carry_on, exit_code_of
from console.cli.options import ACTOR, Host, Json, Key, NoWait, Set, TemplateOption, Timeout, template_variables
from console.cli.output import execute, print_document, print_text
from console.cli.run import RunFile, read_overrides
from console.cli.text import state_words, summary_lines
from console.cli.verbs import Verbs
from console.documents import JobOutcome, StartedExtraction, with_ages
from console.errors import UsageError
from remote.protocol.jobs import Job, is_over
from remote.protocol.progress import ExtractionPlanned
from remote.protocol.reports import ExtractionPlan, ExtractionReport
from remote.protocol.specs import StoreExportSpec, StoreImportSpec, StoreLayout

app = Verbs(
    help="Stores of hidden states: plan, start, show, merge, verify, export, import.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Store = Annotated[
    str, typer.Argument(metavar="STORE", help="A store's directory on the host, such as runs/NAME/store.")
]


@app.command(short_help="Show what a run's extraction would write, and a sample.")
def plan(source: RunFile, host: Host = operations.EMBEDDED, settings: Set = [], as_json: Json = False) -> None:  # noqa: B006, FBT002
    """Tokenize a run's conversations on the host: samples, tokens, the share that counts for the loss, exact bytes and files, and
    the beginning of a sample with what counts between ⟦ and ⟧; exit 5 when the disk has no room.
    """

    async def work() -> ExtractionPlanned:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_extraction.plan_extraction(session, document, overrides)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("extraction_plan", found)
    else:
        print_text("\n".join(extraction_plan_lines(found)))
    if not found.fits:
        raise typer.Exit(5)


@app.command(short_help="Check a store's hashes, shapes and states.")
def verify(
    store: Store,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, help="Only so many random samples and their shards; all unless said."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="JOB", help="A server of `roost server start RUN --capture` to compare with."),
    ] = None,
    recapture: Annotated[int, typer.Option("--recapture", min=1, help="With --server: so many random samples.")] = 4,
    seed: Annotated[int, typer.Option("--seed", help="Which samples are chosen.")] = 0,
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Read a finished store again on the host: hashes, shapes, offsets, rows that are zero or not finite; exit 5 when it is damaged.

    With --server some samples are captured once more and compared.
    """

    async def work() -> Job:
        if not store:
            raise UsageError("a store needs a name", hint="such as runs/NAME/store")
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_extraction.start_verification(
                session, store, samples=samples, recaptured=recapture, server_job_id=server, seed=seed, op_id=key
            )
            return await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)

    _end("verification", execute(work(), as_json=as_json), as_json=as_json)


@app.command(short_help="Show how far an extraction is, and what it leaves out.")
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A job, a run, or a store's directory on the host, finished or not.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help="So many quarantined samples one by one; 20 unless said, 1000 with --json."
        ),
    ] = None,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show an extraction as it is now: progress and rate, what was planned and what is left of the disk, and the quarantine: how many
    samples are left out for which reason, and each of them.
    """

    shown = limit if limit is not None else 1000 if as_json else 20

    async def work() -> tuple[ExtractionReport, float]:
        async with operations.open_host(host, actor=ACTOR) as session:
            now = await operations_telemetry.read_host_clock(session)
            return await operations_extraction.read_extraction(session, name, limit=shown), now

    report, now = execute(work(), as_json=as_json)
    if as_json:
        print_document("extraction_report", with_ages(report, now))
    else:
        print_text("\n".join(extraction_report_lines(report)))


def _show(job: Job) -> None:
    print_text(f"{job.job_id}: {state_words(job.state)}" if is_over(job.state) else job.job_id)
    if job.result is not None:
        print_text("\n".join(f"  {line}" for line in summary_lines(job.result.summary)))


def _end(name: str, job: Job, *, as_json: bool) -> NoReturn:
    if as_json:
        print_document(name, JobOutcome(job=job))
    else:
        _show(job)
    raise typer.Exit(exit_code_of(job))


def _part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise typer.BadParameter("--part is K/N, such as 1/2 for the first of two")
    return int(number), int(of)


@app.command(short_help="Extract a run's states, or a part of them, by itself.")
def start(
    source: RunFile,
    server: Annotated[
        str, typer.Option("--server", metavar="JOB", help="A server of `roost server start RUN --capture`.")
    ],
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="K/N", help="Only the K-th of N parts, for as many servers or hosts."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="The store, on the host; else in the run's directory.")
    ] = None,
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Extract as a run would, through a capturing server that runs; a run takes its store for its own. Started again it goes on.

    Parts are for several servers or hosts: every N-th conversation each. `roost extraction merge` makes the whole of them.
    """
    which = _part(part)

    async def work() -> tuple[ExtractionPlan, Job | None]:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            plan = await operations_extraction.resolve_extraction(
                session, document, overrides, server_job_id=server, part=which, store=output
            )
            job = await operations_extraction.start_extraction(session, plan, op_id=key)
            followed = None if job is None else await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)
            return plan, followed

    plan, job = execute(work(), as_json=as_json)
    if as_json:
        print_document("extraction", StartedExtraction(plan=plan, job=job))
    elif job is None:
        print_text(f"{plan.spec.store} is there already, of the same inputs")
    else:
        _show(job)
    raise typer.Exit(0 if job is None else exit_code_of(job))


@app.command(short_help="Make one store of all parts of an extraction.")
def merge(
    parts: Annotated[
        list[str], typer.Argument(metavar="PART...", help="The stores of all parts, on the host, in any order.")
    ],
    into: Annotated[str, typer.Option("--into", metavar="STORE", help="The store that they make.")],
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Make the whole store of the parts that `roost extraction start --part` wrote, also on other hosts (`roost pull` and `push` bring them).

    The parts stay, and where they lie on one file system no bytes are written twice. As runs/NAME/store it is what the run NAME goes on with.
    """

    if len(parts) == 1:
        raise typer.BadParameter("name the stores of all parts")

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_extraction.start_merge(session, parts, into, op_id=key)
            return await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)

    _end("merge", execute(work(), as_json=as_json), as_json=as_json)


Layout = Annotated[StoreLayout, typer.Argument(metavar="LAYOUT", help="specforge or speculators.")]
Directory = Annotated[str, typer.Argument(metavar="DIR", help="The other trainer's files, on the host.")]


async def _convert(
    host: str, spec: StoreExportSpec | StoreImportSpec, *, timeout_s: float | None, no_wait: bool, key: str | None
) -> Job:
    async with operations.open_host(host, actor=ACTOR) as session:
        job = await operations_extraction.start_conversion(session, spec, op_id=key)
        return await carry_on(session, job, no_wait=no_wait, timeout_s=timeout_s)


@app.command(short_help="Write a store as another trainer reads it.")
def export(
    layout: Layout,
    store: Store,
    directory: Directory,
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Write a store's samples as SpecForge's data_<i>.ckpt or speculators' hs_<i>.safetensors on the host, with what they take for final states."""
    spec = StoreExportSpec(layout=layout, store=store, directory=directory)
    _end(
        "conversion",
        execute(_convert(host, spec, timeout_s=timeout, no_wait=no_wait, key=key), as_json=as_json),
        as_json=as_json,
    )


@app.command("import", short_help="Make a store of another trainer's files.")
def import_files(
    layout: Layout,
    directory: Directory,
    store: Store,
    model: Annotated[str, typer.Option("--model", help="The target that the states are of, on the host.")],
    layer_ids: Annotated[str, typer.Option("--layer-ids", help="Hugging Face ids, such as 2,15,27.")],
    template: TemplateOption = [],  # noqa: B006
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Read SpecForge's data_<i>.ckpt, or speculators' hs_<i>.safetensors beside a samples.jsonl with the loss masks, into a store."""
    words = layer_ids.split(",")
    if not all(word.isdecimal() for word in words):
        raise typer.BadParameter("--layer-ids are numbers with commas between them, such as 2,15,27")
    spec = StoreImportSpec(
        layout=layout,
        directory=directory,
        store=store,
        target_model=model,
        layer_ids=[int(word) for word in words],
        chat_template_kwargs=template_variables(template),
    )
    _end(
        "conversion",
        execute(_convert(host, spec, timeout_s=timeout, no_wait=no_wait, key=key), as_json=as_json),
        as_json=as_json,
    )
