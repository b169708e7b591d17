"""What can be asked of a host's readings: the present one, what was recorded, and how its devices are connected."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from console.errors import ConsoleError
from console.operations import Session, ask, host_events
from console.state.link import Up
from console.state.moments import format_moment
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Heartbeat, Telemetry
from remote.protocol.requests import ReadTelemetry
from remote.protocol.telemetry import (
    GpuEvent,
    GpuTopology,
    ReadHistory,
    ReadTopology,
    TelemetryHistory,
    TelemetrySample,
)

_HOUR_S = 3600.0
_DAY_S = 86_400.0
_CLOCK_PATIENCE_S = 3.0
_REACHES = ((20.0, 1.0), (600.0, 1.0), (86_400.0, 60.0), (math.inf, 600.0))
"""How far from a moment a reading is looked for, and how coarsely: seconds, and seconds a sample."""
_EVENT_REACHES = ((_DAY_S, _HOUR_S), (2 * _HOUR_S, 60.0), (120.0, 1.0))
"""The same for events; what is thinned lags behind by up to its step."""


async def read_telemetry(session: Session) -> TelemetrySample:
    """The newest reading of the host."""
    return await ask(session, ReadTelemetry(), TelemetrySample)


async def read_topology(session: Session) -> GpuTopology:
    """How the devices of the host are connected, and which of their events can be seen there."""
    return await ask(session, ReadTopology(), GpuTopology)


async def read_history(
    session: Session, since: float, until: float | None = None, step_s: float = 1.0
) -> AsyncGenerator[TelemetryHistory, None]:
    """Pages of what was recorded from `since` to before `until` (None: now), seconds since the epoch on the host's clock."""
    while True:
        page = await ask(session, ReadHistory(since=since, until=until, step_s=step_s), TelemetryHistory)
        yield page
        if page.next_since is None:
            return
        if page.next_since <= since:
            raise _stuck(since)
        since = page.next_since


async def read_past_events(session: Session, until: float) -> list[GpuEvent]:
    """The hardware events that were recorded in the day before `until`, oldest first."""
    found: dict[tuple[float, int | None, str], GpuEvent] = {}
    for span, step in _EVENT_REACHES:
        async with aclosing(read_history(session, until - span, until, step)) as pages:
            async for page in pages:
                for event in [event for sample in page.samples for event in sample.gpu_events]:
                    found[event.at, event.gpu_index, event.text] = event
    return sorted(found.values(), key=lambda event: event.at)


async def read_host_clock(session: Session) -> float:
    """The host's clock by its next heartbeat, else this machine's; takes events from the session."""
    try:
        async with asyncio.timeout(_CLOCK_PATIENCE_S), aclosing(host_events(session)) as events:
            async for event in events:
                match event:
                    case Heartbeat(at=at):
                        return at
                    case Telemetry(sample=sample):
                        return sample.sampled_at
                    case _:
                        pass
    except TimeoutError:
        pass
    return time.time()


def host_name_of(session: Session) -> str:
    """What the host calls itself; while its link is down, what the console calls it."""
    return session.state.welcome.host_name if isinstance(session.state, Up) else session.host.name


async def read_sample_at(session: Session, at: float) -> TelemetrySample:
    """The recorded sample nearest before `at`; raises a not-found that names the nearest when none is within two periods."""
    found = await _newest_before(session, at)
    if found is not None and at - found.sampled_at <= 2 * max(1.0, found.period_s):
        return found
    later = await _oldest_after(session, at)
    near = [sample for sample in (found, later) if sample is not None]
    nearest = min(near, key=lambda sample: abs(sample.sampled_at - at), default=None)
    raise _nothing_at(at, nearest, session.host.name)


async def _newest_before(session: Session, at: float) -> TelemetrySample | None:
    end = math.nextafter(at, math.inf)
    for span, step in _REACHES:
        found = await _last(session, max(0.0, at - span), end, step)
        if found is not None and step > 1:
            # What was thinned to one in `step` may hide a nearer one.
            return await _last(session, found.sampled_at, min(end, found.sampled_at + 3 * step), 1.0) or found
        if found is not None:
            return found
    return None


async def _oldest_after(session: Session, at: float) -> TelemetrySample | None:
    for span, step in _REACHES:
        found = await _first(session, at, None if math.isinf(span) else at + span, step)
        if found is not None and step > 1:
            # What was thinned to one in `step` is dated by its last.
            return await _first(session, max(at, found.sampled_at - 3 * step), None, 1.0) or found
        if found is not None:
            return found
    return None


async def _first(session: Session, since: float, until: float | None, step_s: float) -> TelemetrySample | None:
    async with aclosing(read_history(session, since, until, step_s)) as pages:
        async for page in pages:
            if page.samples:
                return page.samples[0]
    return None


async def _last(session: Session, since: float, until: float, step_s: float) -> TelemetrySample | None:
    last: TelemetrySample | None = None
    async with aclosing(read_history(session, since, until, step_s)) as pages:
        async for page in pages:
            last = page.samples[-1] if page.samples else last
    return last


def _nothing_at(at: float, nearest: TelemetrySample | None, host: str) -> ConsoleError:
    moment = format_moment(at)
    if nearest is None:
        info = ErrorInfo(
            code=ErrorCode.NOT_FOUND,
            message=f"nothing is recorded at {moment}, nor at any other time",
            hint="the recorder of the host keeps readings while a job is at work or a console watches",
        )
        return ConsoleError(info)
    there = format_moment(math.ceil(nearest.sampled_at))
    info = ErrorInfo(
        code=ErrorCode.NOT_FOUND,
        message=f"nothing is recorded at {moment}; the nearest reading is of {there}",
        next_command=f"roost telemetry --host {host} --at {there}",
    )
    return ConsoleError(info)


def _stuck(since: float) -> ConsoleError:
    info = ErrorInfo(
        code=ErrorCode.PROTOCOL,
        message=f"the host's history does not go on after {format_moment(since)}",
        hint="console and host differ; reconnect so that the host gets this release",
    )
    return ConsoleError(info)
