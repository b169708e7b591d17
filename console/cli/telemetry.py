"""`roost telemetry`."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, NamedTuple

import typer

from console import operations, operations_telemetry
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, print_document, print_record, print_text
from console.cli.telemetry_text import gap_line, history_line, telemetry_lines, topology_lines
from console.documents import with_ages
from console.errors import HostError, UsageError
from console.state.link import Closed
from console.state.moments import Ago, leaves_gap, moment_on, parse_moment
from remote.protocol.frames import Heartbeat, Telemetry
from remote.protocol.telemetry import TelemetrySample

_WHEN = "an ISO time with its zone (2026-11-29T15:06:40Z), or 10m, 2h, 3d ago"


class Wanted(NamedTuple):
    """Which stretch of the history is wanted; moments are None where they were not said."""

    since: float | Ago | None
    until: float | Ago | None
    at: float | Ago | None
    step_s: float
    since_text: str
    until_text: str


def telemetry(
    host: Host = operations.EMBEDDED,
    watch: Annotated[bool, typer.Option("--watch", help="Go on at 1 Hz until interrupted.")] = False,  # noqa: FBT002
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="With --watch: end after this many samples.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help=f"What was recorded since then: {_WHEN}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="With --since: up to then; default: now.")
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            "--step",
            metavar="SECONDS",
            min=1.0,
            max=86_400.0,
            help="With --since: one sample in so many seconds; default: 1.",
        ),
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="WHEN", help="The reading that was recorded then.")] = None,
    prometheus: Annotated[  # noqa: FBT002
        bool, typer.Option("--prometheus", help="Prometheus text, with the DCGM exporter's names where it has one.")
    ] = False,
    topology: Annotated[  # noqa: FBT002
        bool, typer.Option("--topology", help="How the devices are connected, driver, where events come from.")
    ] = False,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show the host's GPUs, processors, memory, disks, engines, jobs and what is wrong: now, as it goes, or as it was."""

    async def work() -> None:
        chosen = {"--watch": watch, "--since": since, "--at": at, "--prometheus": prometheus, "--topology": topology}
        if count is not None and not watch:
            raise UsageError("--count needs --watch: it ends what goes on")
        wanted = _wanted(chosen, (since, until, at), step, as_json=as_json)
        async with operations.open_host(host, actor=ACTOR) as session:
            if topology:
                await _show_topology(session, as_json=as_json)
            elif prometheus:
                await _show_prometheus(session)
            elif watch:
                await _watch(session, count, as_json=as_json)
            elif wanted.since is not None:
                await _show_history(session, wanted, as_json=as_json)
            else:
                await _show_one(session, wanted.at, as_json=as_json)

    execute(work(), as_json=as_json)


def _wanted(
    chosen: dict[str, object],
    moments: tuple[str | None, str | None, str | None],
    step_s: float | None,
    *,
    as_json: bool,
) -> Wanted:
    """The moments that were asked for; raises UsageError for what cannot be, and for two things at once."""
    since, until, _ = moments
    ways = [name for name, value in chosen.items() if value]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} exclude each other: ask for one of them")
    if as_json and chosen["--prometheus"]:
        raise UsageError("--prometheus has a format of its own: leave --json out")
    if until is not None and since is None:
        raise UsageError("--until needs --since: from when on?")
    if step_s is not None and since is None:
        raise UsageError("--step needs --since: a step of what?")
    try:
        parsed = [None if text is None else parse_moment(text) for text in moments]
    except ValueError as error:
        raise UsageError(str(error)) from None
    wanted = Wanted(
        *parsed, step_s=1.0 if step_s is None else step_s, since_text=since or "", until_text=until or "now"
    )
    if isinstance(wanted.since, Ago) and isinstance(wanted.until, Ago):
        _require_order(moment_on(wanted.since, 0.0), moment_on(wanted.until, 0.0), wanted)
    return wanted


def _require_order(since: float, until: float, wanted: Wanted) -> None:
    if until <= since:
        raise UsageError(f"--until {wanted.until_text} is not after --since {wanted.since_text}")


async def _show_one(session: operations.Session, at: float | Ago | None, *, as_json: bool) -> None:
    now = await operations_telemetry.read_host_clock(session)
    if at is None:
        sample = await operations_telemetry.read_telemetry(session)
        now = max(now, sample.sampled_at)
    else:
        sample = await operations_telemetry.read_sample_at(session, moment_on(at, now))
    if as_json:
        print_document("telemetry", with_ages(sample, now))
    else:
        print_text("\n".join(telemetry_lines(sample, now)))


async def _watch(session: operations.Session, count: int | None, *, as_json: bool) -> None:
    await operations.watch(session, telemetry=True)
    seen, now = 0, 0.0
    async with aclosing(operations.host_events(session)) as events:
        async for event in events:
            match event:
                case Heartbeat(at=at):
                    now = at
                case Telemetry(sample=sample):
                    now = max(now, sample.sampled_at)
                    if as_json:
                        print_record("telemetry", with_ages(sample, now))
                    else:
                        print_text("\n".join([*telemetry_lines(sample, now), ""]))
                    seen += 1
                    if seen == count:
                        return
                case Closed(error=error) if error is not None:
                    raise HostError(error)
                case _:
                    pass


async def _show_history(session: operations.Session, wanted: Wanted, *, as_json: bool) -> None:
    now = await operations_telemetry.read_host_clock(session)
    since = moment_on(wanted.since, now) if wanted.since is not None else now
    until = now if wanted.until is None else moment_on(wanted.until, now)
    _require_order(since, until, wanted)
    before = since
    async with aclosing(_samples(session, since, until, wanted.step_s)) as samples:
        async for sample in samples:
            if as_json:
                print_record("telemetry", with_ages(sample, now))
            else:
                if leaves_gap(before, sample, wanted.step_s):
                    print_text(gap_line(before, sample.sampled_at - sample.period_s))
                print_text(history_line(sample))
            before = sample.sampled_at
    if not as_json and until - before > 3 * max(wanted.step_s, 1.0):
        print_text(gap_line(before, until))


async def _samples(
    session: operations.Session, since: float, until: float, step_s: float
) -> AsyncGenerator[TelemetrySample, None]:
    async with aclosing(operations_telemetry.read_history(session, since, until, step_s)) as pages:
        async for page in pages:
            for sample in page.samples:
                yield sample


async def _show_topology(session: operations.Session, *, as_json: bool) -> None:
    found = await operations_telemetry.read_topology(session)
    if as_json:
        print_document("topology", found)
    else:
        print_text("\n".join(topology_lines(found)))


async def _show_prometheus(session: operations.Session) -> None:
    from console.cli.prometheus import exposition  # noqa: PLC0415 - its library loads only for this

    sample = await operations_telemetry.read_telemetry(session)
    past = await operations_telemetry.read_past_events(session, sample.sampled_at)
    print_text(exposition(sample, operations_telemetry.host_name_of(session), past).rstrip("\n"))
