"""A recorded session: one JSON object a line, played to the screen in place of a host, for tests, screenshots and demos."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import msgspec

from console.errors import HostError, UsageError
from console.state.link import Connecting, LinkState, Lost, Up
from remote.protocol.base import Message
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Event, JobChanged, LogData
from remote.protocol.jobs import Job
from remote.protocol.reports import RunPlan, VerdictReport
from remote.protocol.requests import JobList, Welcome


class LinkUp(Message, frozen=True, kw_only=True):
    """The link was made, or its latency measured anew."""

    latency_s: float
    welcome: Welcome


class LinkLost(Message, frozen=True, kw_only=True):
    """The link broke."""

    reason: str
    retry_in_s: float


class LinkConnecting(Message, frozen=True, kw_only=True):
    """An attempt to connect began."""

    attempt: int


class Recorded(Message, frozen=True, kw_only=True):
    """One thing that happened `at` seconds after the recording began; plans and verdicts are answers to be given later."""

    at: float
    what: Event | LinkUp | LinkLost | LinkConnecting | JobList | RunPlan | VerdictReport


_A = TypeVar("_A")

_decoder = msgspec.json.Decoder(Recorded)


def read_recording(path: Path) -> list[Recorded]:
    """The records of a file in their order; raises UsageError with the line that is none."""
    records: list[Recorded] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(_decoder.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}, line {number} is no record of a session: {error}") from error
    return records


class RecordedSession:
    """A `HostSession` that plays records up to `until` seconds at once, and what follows at `pace` (None: never).

    What is asked of it is kept in `started` and `stopped`.
    """

    def __init__(self, records: list[Recorded], *, until: float = 0.0, pace: float | None = None) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.live: asyncio.Queue[LinkState | Event] = asyncio.Queue()
        self._records = records
        self._until = until
        self._pace = pace
        self._jobs: dict[str, Job] = {}
        self._logs: dict[str, bytes] = {}
        self._watched: set[str] = set()

    async def events(self) -> AsyncIterator[LinkState | Event]:
        """What happened, then whatever is put into `live`."""
        began = time.monotonic()
        for record in self._records:
            ahead = record.at - self._until
            if ahead > 0 and self._pace is None:
                break
            async for event in self._live_until(began + max(0.0, ahead) / (self._pace or 1.0)):
                yield event
            event = self._event(record, began + min(0.0, ahead))
            if event is not None:
                yield event
        while True:
            yield await self.live.get()

    async def _live_until(self, deadline: float) -> AsyncIterator[LinkState | Event]:
        while not self.live.empty():
            yield self.live.get_nowait()
        while (wait := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(wait):
                    event = await self.live.get()
            except TimeoutError:
                return
            yield event

    def _event(self, record: Recorded, happened_at: float) -> LinkState | Event | None:
        match record.what:
            case LinkUp() | LinkLost() | LinkConnecting() as change:
                return _link_state(change, happened_at)
            case JobList(jobs=jobs):
                self._jobs |= {job.job_id: job for job in jobs}
                return None
            case RunPlan() | VerdictReport():
                return None
            case JobChanged(job=job) as changed:
                self._jobs[job.job_id] = job
                return changed
            case LogData(job_id=job_id, data=data) as logged:
                self._logs[job_id] = self._logs.get(job_id, b"") + data
                return logged if job_id in self._watched else None
            case event:
                return event

    async def watch(self, *, logs: dict[str, int], progress: dict[str, int]) -> None:  # noqa: ARG002 - all of it streams
        """Logs that were not watched before are played from their offset on."""
        for job_id in logs.keys() - self._watched:
            missed = self._logs.get(job_id, b"")[logs[job_id] :]
            if missed:
                await self.live.put(LogData(job_id=job_id, offset=logs[job_id], data=missed))
        self._watched = set(logs)

    async def list_jobs(self) -> list[Job]:
        """The jobs as they are at this point of the recording."""
        return sorted(self._jobs.values(), key=lambda job: job.created_at, reverse=True)

    async def plan_run(self, source: str) -> RunPlan:  # noqa: ARG002 - a recording holds one plan
        """The recorded plan."""
        return self._answer(RunPlan, "no plan")

    async def start_run(self, plan: RunPlan) -> Job:
        """The run's job as it was last recorded; nothing is started."""
        self.started.append(plan.run.name)
        return next(job for job in self._jobs.values() if job.agent == "run")

    async def stop_job(self, job: Job) -> Job:
        """The job as it was last recorded; nothing is stopped."""
        self.stopped.append(job.job_id)
        return self._jobs[job.job_id]

    async def read_verdict(self, job_id: str) -> VerdictReport:  # noqa: ARG002 - a recording holds one verdict
        """The recorded verdict."""
        return self._answer(VerdictReport, "no verdict: the run did not get that far")

    def _answer(self, kind: type[_A], absence: str) -> _A:
        for record in self._records:
            if isinstance(record.what, kind):
                return record.what
        raise HostError(ErrorInfo(code=ErrorCode.NOT_FOUND, message=f"the recording has {absence}"))


def _link_state(change: LinkUp | LinkLost | LinkConnecting, happened_at: float) -> LinkState:
    match change:
        case LinkUp(latency_s=latency, welcome=welcome):
            return Up(since=happened_at, latency_s=latency, welcome=welcome)
        case LinkLost(reason=reason, retry_in_s=wait):
            return Lost(since=happened_at, reason=reason, retry_at=happened_at + wait)
        case LinkConnecting(attempt=attempt):
            return Connecting(attempt=attempt, since=happened_at)
