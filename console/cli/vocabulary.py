"""`roost vocabulary validate` and `roost vocabulary copy`."""

from typing import Annotated

import typer

from console import operations
from console.cli.jobs import exit_code_of, follow_until_over
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, print_document, print_text
from console.cli.text import mapping_lines, state_words
from console.cli.verbs import Verbs
from console.documents import CopiedMapping
from remote.protocol.jobs import Job
from remote.protocol.reports import MappingReport

app = Verbs(help="Draft-vocabulary mappings: validate and copy.", no_args_is_help=True, rich_markup_mode=None)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="A mapping directory on the host.")]


@app.command()
def validate(directory: Directory, host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Check the five files of a mapping on the host; exit 5 when it must not be used."""

    async def work() -> MappingReport:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations.validate_mapping(session, directory)

    report = execute(work(), as_json=as_json)
    if as_json:
        print_document("mapping", report)
    else:
        print_text("\n".join(mapping_lines(report)))
    if not report.valid:
        raise typer.Exit(5)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The mapping directory to copy, on the host.")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Where it goes, on the host.")],
    host: Host = operations.EMBEDDED,
    replace: Annotated[bool, typer.Option("--replace", help="Put another mapping at DST aside.")] = False,  # noqa: FBT002
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Copy a mapping on the host: validated, hashed, published whole; never over a different one unless told."""

    async def work() -> tuple[Job, MappingReport | None]:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations.start_mapping_copy(session, source, destination, replace=replace)
            job = await follow_until_over(session, job.job_id, timeout_s=None)
            report = await operations.validate_mapping(session, destination) if exit_code_of(job) == 0 else None
            return job, report

    job, report = execute(work(), as_json=as_json)
    if as_json:
        print_document("copy", CopiedMapping(job=job, mapping=report))
    elif report is not None:
        print_text("\n".join(mapping_lines(report)))
    else:
        print_text(f"{job.job_id}: {state_words(job.state)}")
    raise typer.Exit(exit_code_of(job))
