"""Record what a host tells: readings, jobs, progress and logs, live and from the host's own history."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal

import msgspec

from console.errors import ConsoleError, HostError
from console.operations import Session, get_job, host_events, list_jobs, read_verdict, watch
from console.operations_telemetry import read_history, read_host_clock, read_topology
from console.recording.format import (
    LinkConnecting,
    LinkLost,
    LinkUp,
    Recorded,
    RecordingEnded,
    RecordingStarted,
)
from console.state.link import Closed, Connecting, LinkState, Lost, Up
from remote.protocol.base import Message
from remote.protocol.frames import Event, JobChanged, LogData, LogTruncated, ProgressMade, Telemetry
from remote.protocol.ids import JobId
from remote.protocol.jobs import Finished, Job, Running, is_over
from remote.protocol.requests import JobList

Reason = Literal["job over", "interrupted", "long enough", "link closed"]

_LOG_TAIL_BYTES = 1 << 20
"""A log that was there before is recorded from this far from its end on."""
_LATENCY_EVERY_S = 30.0
_LAST_WORDS_S = 5.0
"""The last records and log bytes of a job come after the change that says that it is over, within this time."""
_RECORDER = "recorder"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded and for how long: until a job is over, so many readings, so many seconds, or until it is ended."""

    job_id: JobId | None = None
    count: int | None = None
    duration_s: float | None = None


class Recorder:
    """Turns what a session streams into records; `write` takes them in the order in which they come."""

    def __init__(
        self, session: Session, write: Callable[[Recorded], None], tell: Callable[[str], None], wanted: Wanted
    ) -> None:
        self.samples = 0
        self.ended_at: float | None = None
        self._session = session
        self._write = write
        self._tell = tell
        self._wanted = wanted
        self._origin = 0.0
        self._began = time.monotonic()
        self._offset = 0.0
        self._logs: dict[JobId, int] = {}
        self._progress: dict[JobId, int] = {}
        self._jobs: dict[JobId, Job] = {}
        self._last_sample_at = float("-inf")
        self._up_at = float("-inf")
        self._was_lost = False

    async def begin(self, since: float | None, host_now: float) -> None:
        """Write the beginning: what the host recorded from `since` on, and its jobs as they are.

        A recording begins with its first reading, for a replay of the empty time before it would be long and tell nothing.
        """
        self._origin = host_now if since is None else await self._first_reading_at(since, host_now)
        self._began, self._offset = time.monotonic(), host_now - self._origin
        self._note(RecordingStarted(host=self._session.host.name, began_at=self._origin), 0.0)
        if isinstance(self._session.state, Up):
            self._note_up(self._session.state, 0.0)
        await self._note_topology()
        jobs = await list_jobs(self._session)
        if since is None:
            self._note(JobList(jobs=jobs), 0.0)
        else:
            self._note(JobList(jobs=[]), 0.0)
            await self._back_fill(since)
            for job in reversed(jobs):
                self._note_past(job)
        for job in jobs:
            self._jobs[job.job_id] = msgspec.structs.replace(job, spec=None)
        await self._follow(jobs)

    async def take(self, event: LinkState | Event) -> None:
        """Write one event."""
        match event:
            case Up() | Lost() | Connecting() | Closed():
                await self._take_link(event)
            case Telemetry(sample=sample):
                if sample.sampled_at > self._last_sample_at:
                    self._last_sample_at = sample.sampled_at
                    self.samples += 1
                    self._note(event)
            case JobChanged(job=job):
                await self._take_job(job)
            case ProgressMade(job_id=job_id, record=record):
                self._progress[job_id] = record.seq
                self._note(event, min(self._now(), max(0.0, record.at - self._origin)))
            case LogData(job_id=job_id, offset=offset, data=data):
                self._logs[job_id] = offset + len(data)
                self._note(event)
            case LogTruncated():
                self._note(event)
            case _:
                pass

    async def end(self, reason: Reason) -> None:
        """Write the verdicts of the runs that reached one, and the last line."""
        for job in self._jobs.values():
            if job.agent == "run" and job.job_id in self._logs and job.result is not None:
                try:
                    self._note(await read_verdict(self._session, job.job_id))
                except ConsoleError as error:
                    self._tell(f"no verdict of {job.job_id}: {error.info.message}")
        self._note(RecordingEnded(reason=reason))

    def is_complete(self) -> bool:
        """Whether nothing more is to come of the job that was waited for."""
        if self.ended_at is None:
            return False
        behind = [name for name, cursor in self._logs.items() if cursor < self._jobs[name].log_size]
        return not behind or time.monotonic() - self.ended_at >= _LAST_WORDS_S

    def _now(self) -> float:
        return self._offset + time.monotonic() - self._began

    def _note(self, what: Message, at: float | None = None) -> None:
        self._write(Recorded(at=round(self._now() if at is None else at, 3), what=what))  # pyright: ignore[reportArgumentType]

    def _note_up(self, up: Up, at: float | None = None) -> None:
        self._up_at = time.monotonic()
        self._note(LinkUp(latency_s=up.latency_s, welcome=up.welcome), at)

    def _note_past(self, job: Job) -> None:
        """A job of the time before the recorder came: as at work from its beginning, and as it is now since its end, or since now.

        What it had told by then is in its own records, at their moments.
        """
        now = max(0.0, job.created_at - self._origin)
        was_over = isinstance(job.state, Finished) and job.state.ended_at <= self._origin
        if not was_over:
            state, now = job.state, self._now()
            if isinstance(job.state, Finished):
                state = Running(since=job.state.started_at, pid=0)
                now = job.state.ended_at - self._origin
            untold = {"last_line": "", "log_start": 0, "log_size": 0, "progress_seq": 0, "last_progress": None}
            early = msgspec.structs.replace(job, state=state, result=None, **untold)
            self._note(JobChanged(job=early), max(0.0, job.created_at - self._origin))
        self._note(JobChanged(job=job), now)

    async def _note_topology(self) -> None:
        try:
            self._note(await read_topology(self._session), 0.0)
        except ConsoleError:
            return  # a host without devices has none

    async def _first_reading_at(self, since: float, host_now: float) -> float:
        async with aclosing(read_history(self._session, since)) as pages:
            async for page in pages:
                if page.samples:
                    return page.samples[0].sampled_at
        return host_now

    async def _back_fill(self, since: float) -> None:
        async with aclosing(read_history(self._session, since)) as pages:
            async for page in pages:
                for sample in page.samples:
                    if sample.sampled_at > self._last_sample_at:
                        self._last_sample_at = sample.sampled_at
                        self._note(Telemetry(sample=sample), max(0.0, sample.sampled_at - self._origin))

    async def _take_link(self, state: LinkState) -> None:
        match state:
            case Up():
                if self._was_lost or time.monotonic() - self._up_at >= _LATENCY_EVERY_S:
                    self._note_up(state)
                if self._was_lost:
                    self._was_lost = False
                    self._tell("link is up again; what the host recorded meanwhile is added")
                    await self._back_fill(self._last_sample_at)
            case Lost(reason=reason, retry_at=retry_at):
                if not self._was_lost:
                    self._tell(f"link lost ({reason}); reconnecting, jobs on the host go on")
                self._was_lost = True
                self._note(LinkLost(reason=reason, retry_in_s=max(0.0, retry_at - time.monotonic())))
            case Connecting(attempt=attempt):
                self._note(LinkConnecting(attempt=attempt))
            case Closed():
                pass

    async def _take_job(self, job: Job) -> None:
        known = self._jobs.get(job.job_id)
        # The spec does not change, and in every change it would be most of the file.
        lean = job if known is None else msgspec.structs.replace(job, spec=None)
        self._jobs[job.job_id] = lean
        self._note(JobChanged(job=lean))
        if is_over(job.state) and known is not None and not is_over(known.state) and job.agent != _RECORDER:
            self._tell(f"{job.job_id} is over")
        if job.job_id == self._wanted.job_id and is_over(job.state) and self.ended_at is None:
            self.ended_at = time.monotonic()
        await self._follow([job])

    async def _follow(self, jobs: list[Job]) -> None:
        """Have the progress and logs of those jobs streamed that belong to what is recorded."""
        fresh = [job for job in jobs if job.job_id not in self._logs and self._belongs(job)]
        for job in fresh:
            self._logs[job.job_id] = max(job.log_start, job.log_size - _LOG_TAIL_BYTES)
            self._progress[job.job_id] = 0
            if job.job_id == self._wanted.job_id and is_over(job.state):
                self.ended_at = time.monotonic()
        if fresh or not self._watched:
            self._watched = True
            await watch(self._session, telemetry=True, logs=self._logs, progress=self._progress)

    _watched = False

    def _belongs(self, job: Job) -> bool:
        if self._wanted.job_id is not None:
            return self._wanted.job_id in (job.job_id, job.run_id)
        return job.agent != _RECORDER and (job.job_id not in self._jobs or not is_over(job.state))


async def record(
    session: Session,
    write: Callable[[Recorded], None],
    *,
    wanted: Wanted,
    since: float | None,
    stop: asyncio.Event,
    tell: Callable[[str], None],
) -> Reason:
    """Write records until what was wanted is there or `stop` is set; returns why it ended. Raises ConsoleError."""
    if wanted.job_id is not None:
        await get_job(session, wanted.job_id)
    recorder = Recorder(session, write, tell, wanted)
    await recorder.begin(since, await read_host_clock(session))
    reason: Reason = "link closed"
    deadline = None if wanted.duration_s is None else time.monotonic() + wanted.duration_s
    async with aclosing(_until_stopped(session, stop)) as events:
        async for event in events:
            match event:
                case "stopped":
                    reason = "interrupted"
                    break
                case Closed(error=error) if error is not None:
                    raise HostError(error)
                case "tick":
                    pass
                case event:
                    await recorder.take(event)
            if recorder.is_complete():
                reason = "job over"
                break
            if (deadline is not None and time.monotonic() >= deadline) or recorder.samples == wanted.count:
                reason = "long enough"
                break
    await recorder.end(reason)
    return reason


async def _until_stopped(
    session: Session, stop: asyncio.Event
) -> AsyncGenerator[LinkState | Event | Literal["tick", "stopped"], None]:
    """The session's events, a tick in every silent half second, and at last that `stop` was set."""
    stopping = asyncio.create_task(stop.wait())
    async with aclosing(host_events(session)) as events:
        upcoming = asyncio.ensure_future(anext(events))
        try:
            while True:
                await asyncio.wait((upcoming, stopping), timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    yield "stopped"
                    return
                if not upcoming.done():
                    yield "tick"
                    continue
                try:
                    event = upcoming.result()
                except StopAsyncIteration:
                    return
                yield event
                upcoming = asyncio.ensure_future(anext(events))
        finally:
            for task in (upcoming, stopping):
                task.cancel()
            await asyncio.gather(upcoming, stopping, return_exceptions=True)
