"""A recording in place of a host, for replays, tests and screenshots."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TypeVar

from console.errors import HostError
from console.recording.clock import PlayClock
from console.recording.format import LinkConnecting, LinkLost, LinkUp, Recorded, RecordingEnded, RecordingStarted
from console.state.link import Connecting, LinkState, Lost, Up
from remote.protocol.approvals import Approval
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Event, JobChanged, LogData, Telemetry
from remote.protocol.jobs import Job
from remote.protocol.journal import JournalEntry
from remote.protocol.mappings import CoverageReport, MappingCoverageSpec
from remote.protocol.reports import MappingInspection, MappingReport, RunPlan, VerdictReport
from remote.protocol.requests import JobList
from remote.protocol.storage import ReclaimPlan, StorageReport, TrashEntry
from remote.protocol.telemetry import GpuTopology, TelemetryHistory

_A = TypeVar("_A")


class RecordedSession:
    """A `HostSession` that plays its records as far as its clock is; by default one that stands at `until` seconds.

    What is asked of it is kept in `started`, `stopped`, `reclaimed` (tokens), `restored`, `purged`, `measured`, `decided` (request, approved) and `copied` (source, destination, host, replaced); what is put into `live` is played besides. `stamp` is the time
    of what was played last, on the clock that link states count with.
    """

    def __init__(self, records: list[Recorded], *, until: float = 0.0, clock: PlayClock | None = None) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.live: asyncio.Queue[LinkState | Event | None] = asyncio.Queue()
        self.storage: StorageReport | None = None
        self.reclaim_plan: ReclaimPlan | None = None
        self.reclaimed: list[str] = []
        self.restored: list[str] = []
        self.purged: list[str] = []
        self.journal: list[JournalEntry] = []
        self.approvals: list[Approval] = []
        self.decided: list[tuple[str, bool]] = []
        self.mappings: dict[str, MappingInspection] = {}
        self.coverages: dict[str, CoverageReport] = {}
        self.measured: list[MappingCoverageSpec] = []
        self.resumed: list[str] = []
        self.exported: list[tuple[str, str, int]] = []
        self.copied: list[tuple[str, str, str, bool]] = []
        self.stamp = 0.0
        self._records = records
        self._clock = clock or PlayClock(until, duration_s=float("inf"), running=False)
        self._origin = 0.0 if clock is not None else time.monotonic() - until
        self._clock.on_change = lambda: self.live.put_nowait(None)
        self._jobs: dict[str, Job] = {}
        self._logs: dict[str, list[LogData]] = {}
        self._watched: set[str] = set()

    async def events(self) -> AsyncIterator[LinkState | Event]:
        """What happened, then whatever is put into `live`."""
        for record in self._records:
            async for event in self._live_until(record.at):
                yield event
            self.stamp = self._origin + record.at
            event = self._event(record)
            if event is not None:
                yield event
        while True:
            if (event := await self.live.get()) is not None:
                yield event

    async def _live_until(self, at: float) -> AsyncIterator[LinkState | Event]:
        while (wait := self._clock.wait_s(at)) != 0.0 or not self.live.empty():
            try:
                async with asyncio.timeout(wait):
                    event = await self.live.get()
            except TimeoutError:
                continue
            if event is not None:
                yield event

    def _event(self, record: Recorded) -> LinkState | Event | None:
        match record.what:
            case LinkUp() | LinkLost() | LinkConnecting() as change:
                return _link_state(change, self.stamp)
            case JobList(jobs=jobs):
                self._jobs |= {job.job_id: job for job in jobs}
                return None
            case RunPlan() | VerdictReport() | GpuTopology() | RecordingStarted() | RecordingEnded():
                return None
            case JobChanged(job=job) as changed:
                self._jobs[job.job_id] = job
                return changed
            case LogData(job_id=job_id) as logged:
                self._logs.setdefault(job_id, []).append(logged)
                return logged if job_id in self._watched else None
            case event:
                return event

    async def watch(self, *, logs: dict[str, int], progress: dict[str, int]) -> None:  # noqa: ARG002 - all of it streams
        """Logs that were not watched before are played from their offset on."""
        for job_id in logs.keys() - self._watched:
            for logged in self._logs.get(job_id, []):
                missed = logged.data[max(0, logs[job_id] - logged.offset) :]
                if missed:
                    offset = logged.offset + len(logged.data) - len(missed)
                    await self.live.put(LogData(job_id=job_id, offset=offset, data=missed))
        self._watched = set(logs)

    async def read_history(self, since: float) -> AsyncIterator[TelemetryHistory]:
        """The readings that were played already."""
        played = [
            record.what.sample
            for record in self._records
            if isinstance(record.what, Telemetry) and self._clock.wait_s(record.at) == 0.0
        ]
        yield TelemetryHistory(samples=[sample for sample in played if sample.sampled_at >= since])

    async def read_topology(self) -> GpuTopology:
        """The recorded topology."""
        return self._answer(GpuTopology, "no topology of its devices")

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

    async def list_approvals(self) -> list[Approval]:
        """What a test put there; a recording holds none."""
        return self.approvals

    async def decide_approval(self, seen: Approval, *, approve: bool) -> Approval:
        """As it was; nothing is done."""
        self.decided.append((seen.approval_id, approve))
        return seen

    async def read_journal(self) -> list[JournalEntry]:
        """What a test or a demonstration put there."""
        return self.journal

    async def read_storage(self) -> StorageReport:
        """What a test or a demonstration put there; a recording holds none."""
        if self.storage is None:
            raise HostError(
                ErrorInfo(code=ErrorCode.NOT_FOUND, message="the recording has no look at the disks' directories")
            )
        return self.storage

    async def plan_reclaim(self, paths: list[str]) -> ReclaimPlan:  # noqa: ARG002 - there is one plan
        """What a test put there; a recording holds none."""
        if self.reclaim_plan is None:
            raise HostError(ErrorInfo(code=ErrorCode.NOT_FOUND, message="nothing can be reclaimed in a recording"))
        return self.reclaim_plan

    async def reclaim(self, plan: ReclaimPlan) -> list[TrashEntry]:
        """Nothing is moved."""
        self.reclaimed.append(plan.token)
        return [] if self.storage is None else self.storage.trash

    async def restore_from_trash(self, name: str) -> list[TrashEntry]:
        """Nothing is put back."""
        self.restored.append(name)
        return [] if self.storage is None else self.storage.trash

    async def start_purge(self, entries: list[TrashEntry]) -> Job:
        """The newest job; nothing is deleted."""
        self.purged += [entry.name for entry in entries]
        return next(iter(self._jobs.values()))

    async def inspect_mapping(self, path: str) -> MappingInspection:
        """What a test put there; a recording holds none."""
        if path not in self.mappings:
            raise HostError(ErrorInfo(code=ErrorCode.NOT_FOUND, message="the recording has no look at this mapping"))
        return self.mappings[path]

    async def find_mapping(self, path: str, *, host: str) -> MappingReport | None:  # noqa: ARG002 - there is one host
        """As `inspect_mapping`."""
        found = self.mappings.get(path)
        return None if found is None else found.report

    async def read_coverage(self, job_id: str) -> CoverageReport:
        """What a test put there; a recording holds none."""
        if job_id not in self.coverages:
            raise HostError(
                ErrorInfo(code=ErrorCode.NOT_FOUND, message="the recording has no figures of this coverage")
            )
        return self.coverages[job_id]

    async def measure_coverage(self, spec: MappingCoverageSpec) -> Job:
        """The newest job; nothing is started."""
        self.measured.append(spec)
        return next(iter(self._jobs.values()))

    async def copy_mapping(self, source: str, destination: str, *, host: str, replace: bool) -> Job:
        """The newest job; nothing is copied."""
        self.copied.append((source, destination, host, replace))
        return next(iter(self._jobs.values()))

    async def resume_training(self, job_id: str) -> Job:
        """The recorded training; nothing is started."""
        self.resumed.append(job_id)
        return next(job for job in self._jobs.values() if job.agent == "training")

    async def export_drafter(self, job_id: str, directory: str, *, step: int) -> Job:
        """The recorded training; nothing is written."""
        self.exported.append((job_id, directory, step))
        return next(job for job in self._jobs.values() if job.agent == "training")

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
