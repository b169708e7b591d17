"""`roost record` and `roost replay`."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from console import operations, operations_recording, operations_telemetry
from console.cli.options import ACTOR, Host, Json, finite
from console.cli.output import execute, narrate, print_document, print_text, require_terminal
from console.cli.text import state_words
from console.errors import ConsoleError, UsageError
from console.operations_recording import Wanted
from console.recording.reader import Contents, contents, open_recording, torn_words
from console.recording.writer import RecordingWriter
from console.state.moments import format_moment, moment_on, parse_moment
from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration
from remote.protocol.errors import ErrorCode, ErrorInfo

File = Annotated[Path, typer.Argument(metavar="FILE", help="The recording; .gz at the end compresses it.")]


def record(
    file: File,
    host: Host = operations.EMBEDDED,
    until: Annotated[
        str | None, typer.Option("--until", metavar="JOB", help="End when this job, with those it started, is over.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many readings.")] = None,
    duration: Annotated[
        float | None, typer.Option("--duration", metavar="SECONDS", callback=finite, help="End after so many seconds.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Begin with what the host recorded since then: 10m, 2h, a time."),
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Record readings, jobs, progress and logs into a file, for `roost replay`; Ctrl-C ends it."""

    async def work() -> Contents:
        if until is not None and (count is not None or duration is not None):
            raise UsageError("--until excludes --count and --duration: which of them ends it?")
        wanted = Wanted(job_id=until, count=count, duration_s=duration)
        moment = _moment(since)
        async with operations.open_host(host, actor=ACTOR) as session:
            began = None
            if moment is not None:
                now = await operations_telemetry.read_host_clock(session)
                began = moment_on(moment, now)
                if began > now:
                    raise UsageError(f"--since {since} is yet to come: the host's clock says {format_moment(now)}")
            with RecordingWriter(file) as writer:
                narrate(f"recording {host} into {file}; Ctrl-C ends it")
                await _record(session, writer, wanted, began)
        return contents(open_recording(file))

    found = execute(work(), as_json=as_json)
    _print_contents(found, as_json=as_json)


def _moment(text: str | None):  # noqa: ANN202 - what parse_moment returns, or None
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


async def _record(session: operations.Session, writer: RecordingWriter, wanted: Wanted, since: float | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await operations_recording.record(session, writer.write, wanted=wanted, since=since, stop=stop, tell=narrate)
    except OSError as error:
        info = ErrorInfo(
            code=ErrorCode.FAILED,
            message=f"cannot write {writer.path}: {error.strerror}; what is in it can be replayed",
            hint="make room, then record into another file",
        )
        raise ConsoleError(info) from error
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `roost record` wrote.")],
    speed: Annotated[float, typer.Option("--speed", min=0.05, max=1000.0, help="2 is twice as fast as it was.")] = 1.0,
    at: Annotated[float, typer.Option("--at", metavar="SECONDS", callback=finite, help="Begin so far into it.")] = 0.0,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show a recording on the screen as if it happened now; nothing can be changed in it. With --json: what is in it."""

    async def work() -> Contents:
        return contents(open_recording(file))

    if as_json:
        _print_contents(execute(work(), as_json=True), as_json=True)
        return
    found = execute(_checked(file, at), as_json=False)
    if found.torn:
        narrate(f"roost: {torn_words(found)}")
    require_terminal()
    from console.ui.replay import run_replay  # noqa: PLC0415 - Textual loads only for the screen

    raise typer.Exit(run_replay(found, speed=speed, at=at))


async def _checked(file: Path, at: float):  # noqa: ANN202 - a Recording
    found = open_recording(file)
    if at > found.duration_s:
        raise UsageError(f"--at {at:g} is beyond the end of {file}, which is {found.duration_s:.0f} s long")
    return found


def _print_contents(found: Contents, *, as_json: bool) -> None:
    if as_json:
        print_document("recording", found)
        return
    began = "" if found.began_at is None else f", from {format_moment(found.began_at)} on"
    lines = [
        f"{found.file}: {one_line(found.host)}{began}, {format_duration(found.duration_s)}",
        f"  {_counted(found.samples, 'reading')}, {_counted(len(found.jobs), 'job')}, {format_bytes(found.log_bytes)} of logs",
        *(f"  {one_line(job.job_id)}  {state_words(job.state)}" for job in found.jobs),
        f"  look at it with: roost replay {found.file}",
    ]
    print_text("\n".join(lines))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
