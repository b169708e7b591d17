"""`roost server`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from console import operations, operations_server
from console.cli.jobs import JobName
from console.cli.options import ACTOR, Host, Json, Set
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.run import RunFile, read_overrides
from console.cli.text import server_lines
from console.errors import UsageError
from console.link.engine_http import HttpReply
from console.state.sanitize import sanitize
from remote.protocol.reports import RunPlan

app = typer.Typer(
    help="Inference servers: their exact commands, and questions to one that runs.",
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
        print_document("server_plan", {"servers": servers, "problems": found.problems})
    else:
        print_text("\n".join(server_lines(found)))
    if found.problems:
        raise typer.Exit(5)


@app.command(short_help="Send one HTTP request and print the body.")
def request(
    job_id: JobName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Such as /v1/models, /get_server_info or /metrics.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="JSON|@FILE", help="POST this JSON, or that of a file.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the answer.")
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
        body = _parsed(text) if "json" in reply.content_type else text
        print_document("reply", {"status": reply.status, "content_type": reply.content_type, "body": body})
    elif sys.stdout.isatty():
        sys.stdout.write(sanitize(text) + ("" if text.endswith("\n") else "\n"))
    else:
        sys.stdout.buffer.write(reply.body)
    sys.stdout.flush()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
