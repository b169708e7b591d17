"""`roost verdict`."""

from pathlib import Path
from typing import Annotated

import typer

from console import operations
from console.cli.jobs import JobName
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.text import verdict_lines
from console.report.markdown import verdict_markdown
from remote.protocol.reports import VerdictReport


def verdict(
    job_id: JobName,
    host: Host = operations.EMBEDDED,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print it as a Markdown page, without plots.")] = False,  # noqa: FBT002
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the page with plots and figures there.")
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show the verdict of a run, or write it as a page (report.md) with plots that can be sent to somebody."""

    async def work() -> tuple[VerdictReport, list[Path]]:
        async with operations.open_host(host, actor=ACTOR) as session:
            found = await operations.read_verdict(session, job_id)
        return found, [] if output is None else _write(found, output)

    found, written = execute(work(), as_json=as_json)
    if as_json:
        print_document("verdict", found)
    elif markdown:
        print_text(verdict_markdown(found).rstrip())
    elif not written:
        print_text("\n".join(verdict_lines(found)))
    for path in written:
        narrate(f"wrote {path}")


def _write(found: VerdictReport, directory: Path) -> list[Path]:
    from console.report.writer import write_verdict  # noqa: PLC0415 - matplotlib loads only where plots are drawn

    return write_verdict(found, directory)
