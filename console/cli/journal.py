"""`roost journal`."""

from typing import Annotated

import typer

from console import operations, operations_telemetry
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, narrate, print_document, print_text
from console.errors import UsageError
from console.state.moments import Ago, format_moment, moment_on, parse_moment
from console.state.sanitize import one_line
from remote.protocol.journal import JournalEntry, JournalPage


def journal(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Only what was asked since then: 10m, 2h, 3d ago, or 2026-11-29T15:06:40Z."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many entries, the newest.")] = 100,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show every change that anybody asked of the host, newest first: who, when, what, by which plan, and what came of it."""

    async def work() -> JournalPage:
        moment = _moment(since)
        async with operations.open_host(host, actor=ACTOR) as session:
            if isinstance(moment, Ago):
                moment = moment_on(moment, await operations_telemetry.read_host_clock(session))
            return await operations.read_journal(session, since=moment, limit=limit)

    page = execute(work(), as_json=as_json)
    if as_json:
        print_document("journal", page)
        return
    if page.entries:
        print_text("\n".join(entry_line(entry) for entry in page.entries))
    if page.omitted:
        narrate(f"{page.omitted} older ones are left out; --limit {limit + page.omitted} shows them")


def _moment(text: str | None) -> float | Ago | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def entry_line(entry: JournalEntry) -> str:
    """One change in a line."""
    door = entry.actor if entry.origin is None else f"{entry.actor} ({entry.origin})"
    about = f"{entry.action.replace('_', ' ')} {entry.subject}" + (f": {entry.summary}" if entry.summary else "")
    end = entry.outcome + (f" ({entry.code.value}): {entry.message}" if entry.code is not None else "")
    return one_line(f"{format_moment(entry.at)}  {door}  {about}  {end}")
