"""`roost telemetry`."""

from contextlib import aclosing
from typing import Annotated

import typer

from console import operations
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, print_document, print_record, print_text
from console.cli.text import telemetry_lines
from remote.protocol.frames import Telemetry
from remote.protocol.telemetry import TelemetrySample


def telemetry(
    host: Host = operations.EMBEDDED,
    watch: Annotated[bool, typer.Option("--watch", help="Go on at 1 Hz until interrupted.")] = False,  # noqa: FBT002
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="With --watch: end after this many samples.")
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show the host's GPUs, processors, memory, disks and engines."""

    async def work() -> None:
        async with operations.open_host(host, actor=ACTOR) as session:
            if not watch:
                _print(await operations.read_telemetry(session), as_json=as_json, stream=False)
                return
            await operations.watch(session, telemetry=True)
            seen = 0
            async with aclosing(operations.host_events(session)) as events:
                async for event in events:
                    if isinstance(event, Telemetry):
                        _print(event.sample, as_json=as_json, stream=True)
                        seen += 1
                        if seen == count:
                            return

    execute(work(), as_json=as_json)


def _print(sample: TelemetrySample, *, as_json: bool, stream: bool) -> None:
    if as_json:
        (print_record if stream else print_document)("telemetry", sample)
    else:
        print_text("\n".join(telemetry_lines(sample)))
