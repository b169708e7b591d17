"""What the screen needs of a host: the operations, as an interface that a recording can stand behind too."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from console import (
    operations,
    operations_approvals,
    operations_storage,
    operations_telemetry,
    operations_training,
    operations_vocabulary,
)
from console.operations import Session
from console.state.link import LinkState
from remote.protocol.approvals import Approval
from remote.protocol.frames import Event
from remote.protocol.ids import new_op_id
from remote.protocol.jobs import Job
from remote.protocol.journal import JournalEntry
from remote.protocol.mappings import CoverageReport, MappingCoverageSpec
from remote.protocol.reports import MappingInspection, MappingReport, RunPlan, VerdictReport
from remote.protocol.storage import ReclaimPlan, StorageReport, TrashEntry
from remote.protocol.telemetry import GpuTopology, TelemetryHistory

ACTOR = "screen"

_JOURNAL_ENTRIES = 50


class HostSession(Protocol):
    """An open host."""

    def events(self) -> AsyncIterator[LinkState | Event]:
        """Link states and what the host streams."""
        ...

    async def watch(self, *, logs: dict[str, int], progress: dict[str, int]) -> None:
        """Stream telemetry, jobs, and these logs and progresses."""
        ...

    def read_history(self, since: float) -> AsyncIterator[TelemetryHistory]:
        """Pages of what the host recorded since then, on its own clock."""
        ...

    async def read_topology(self) -> GpuTopology:
        """How the host's devices are connected."""
        ...

    async def list_jobs(self) -> list[Job]:
        """All jobs."""
        ...

    async def plan_run(self, source: str) -> RunPlan:
        """Plan a preset or a run file."""
        ...

    async def start_run(self, plan: RunPlan) -> Job:
        """Start what was planned."""
        ...

    async def stop_job(self, job: Job) -> Job:
        """Stop a job as it was seen; refused when it changed since."""
        ...

    async def read_verdict(self, job_id: str) -> VerdictReport:
        """The verdict of a run."""
        ...

    async def read_storage(self) -> StorageReport:
        """What lies on the disks, and the trash."""
        ...

    async def plan_reclaim(self, paths: list[str]) -> ReclaimPlan:
        """What would go into the trash."""
        ...

    async def reclaim(self, plan: ReclaimPlan) -> list[TrashEntry]:
        """Move exactly what was planned into the trash, which is the answer; refused when something changed since."""
        ...

    async def restore_from_trash(self, name: str) -> list[TrashEntry]:
        """Put an entry of the trash back."""
        ...

    async def start_purge(self, entries: list[TrashEntry]) -> Job:
        """Start deleting entries of the trash for good."""
        ...

    async def read_journal(self) -> list[JournalEntry]:
        """The newest changes that anybody asked of the host, newest first."""
        ...

    async def list_approvals(self) -> list[Approval]:
        """The inbox: what waits for a person, then what was decided."""
        ...

    async def decide_approval(self, seen: Approval, *, approve: bool) -> Approval:
        """Approve a request as it was seen, or refuse it."""
        ...

    async def inspect_mapping(self, path: str) -> MappingInspection:
        """All that the host knows of a mapping."""
        ...

    async def find_mapping(self, path: str, *, host: str) -> MappingReport | None:
        """What lies at a path of this host, or of another by its name; None for no mapping."""
        ...

    async def read_coverage(self, job_id: str) -> CoverageReport:
        """What a job measured of a mapping's coverage."""
        ...

    async def measure_coverage(self, spec: MappingCoverageSpec) -> Job:
        """Start measuring."""
        ...

    async def copy_mapping(self, source: str, destination: str, *, host: str, replace: bool) -> Job:
        """Start a copy on this host, or bring it to another and start it there."""
        ...

    async def resume_training(self, job_id: str) -> Job:
        """Go on with a training that ended early."""
        ...

    async def export_drafter(self, job_id: str, directory: str, *, step: int) -> Job:
        """Start writing the drafter of a checkpoint."""
        ...


Connect = Callable[[], AbstractAsyncContextManager[HostSession]]
"""Opens the host; raises ConsoleError."""


def _say_nothing(words: str) -> None:
    """The way of a mapping to another host is short."""


class LiveSession:
    """The operations on a real host."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def events(self) -> AsyncIterator[LinkState | Event]:
        """Link states and what the host streams."""
        return operations.host_events(self._session)

    async def watch(self, *, logs: dict[str, int], progress: dict[str, int]) -> None:
        """Stream telemetry, jobs, and these logs and progresses."""
        await operations.watch(self._session, telemetry=True, logs=logs, progress=progress)

    def read_history(self, since: float) -> AsyncIterator[TelemetryHistory]:
        """Pages of what the host recorded since then, on its own clock."""
        return operations_telemetry.read_history(self._session, since)

    async def read_topology(self) -> GpuTopology:
        """How the host's devices are connected."""
        return await operations_telemetry.read_topology(self._session)

    async def list_jobs(self) -> list[Job]:
        """All jobs."""
        return await operations.list_jobs(self._session)

    async def plan_run(self, source: str) -> RunPlan:
        """Plan a preset or a run file."""
        return await operations.plan_run(self._session, operations.run_document(source))

    async def start_run(self, plan: RunPlan) -> Job:
        """Start exactly what was planned, or raise what changed since; each time anew."""
        return await operations.apply_plan(self._session, plan.fingerprint, op_id=new_op_id())

    async def stop_job(self, job: Job) -> Job:
        """Stop a job as it was seen; refused when it changed since."""
        return await operations.stop_job(
            self._session, job.job_id, reason="asked on the screen", expected_revision=job.revision
        )

    async def read_verdict(self, job_id: str) -> VerdictReport:
        """The verdict of a run."""
        return await operations.read_verdict(self._session, job_id)

    async def read_storage(self) -> StorageReport:
        """What lies on the disks, and the trash."""
        return await operations_storage.read_storage(self._session)

    async def plan_reclaim(self, paths: list[str]) -> ReclaimPlan:
        """What would go into the trash."""
        return await operations_storage.plan_reclaim(self._session, paths)

    async def reclaim(self, plan: ReclaimPlan) -> list[TrashEntry]:
        """Move exactly what was planned into the trash, which is the answer; refused when something changed since."""
        return await operations_storage.reclaim(self._session, plan.paths, plan.token)

    async def restore_from_trash(self, name: str) -> list[TrashEntry]:
        """Put an entry of the trash back."""
        return await operations_storage.restore_from_trash(self._session, name)

    async def start_purge(self, entries: list[TrashEntry]) -> Job:
        """Start deleting entries of the trash for good."""
        return await operations_storage.start_purge(self._session, entries)

    async def read_journal(self) -> list[JournalEntry]:
        """The newest changes that anybody asked of the host, newest first."""
        return (await operations.read_journal(self._session, limit=_JOURNAL_ENTRIES)).entries

    async def list_approvals(self) -> list[Approval]:
        """The inbox: what waits for a person, then what was decided."""
        return (await operations_approvals.list_approvals(self._session)).approvals

    async def decide_approval(self, seen: Approval, *, approve: bool) -> Approval:
        """Approve a request as it was seen, or refuse it."""
        return await operations_approvals.decide_approval(
            self._session, seen.approval_id, seen.fingerprint, approve=approve
        )

    async def inspect_mapping(self, path: str) -> MappingInspection:
        """All that the host knows of a mapping."""
        return await operations_vocabulary.inspect_mapping(self._session, path)

    async def find_mapping(self, path: str, *, host: str) -> MappingReport | None:
        """What lies at a path of this host, or of another by its name; None for no mapping."""
        if not host:
            return await operations_vocabulary.find_mapping(self._session, path)
        async with operations.open_host(host, actor=ACTOR) as there:
            return await operations_vocabulary.find_mapping(there, path)

    async def read_coverage(self, job_id: str) -> CoverageReport:
        """What a job measured of a mapping's coverage."""
        return await operations_vocabulary.read_coverage(self._session, job_id)

    async def measure_coverage(self, spec: MappingCoverageSpec) -> Job:
        """Start measuring."""
        return await operations_vocabulary.start_mapping_coverage(self._session, spec)

    async def copy_mapping(self, source: str, destination: str, *, host: str, replace: bool) -> Job:
        """Start a copy on this host, or bring it to another and start it there."""
        if not host:
            return await operations_vocabulary.start_mapping_copy(self._session, source, destination, replace=replace)
        async with operations.open_host(host, actor=ACTOR) as there:
            landed, origin = await operations_vocabulary.bring_mapping(
                self._session, source, there, report=_say_nothing
            )
            return await operations_vocabulary.start_mapping_copy(
                there, landed, destination, replace=replace, origin=origin
            )

    async def resume_training(self, job_id: str) -> Job:
        """Go on with a training that ended early, on as many devices as before."""
        return await operations_training.resume_training(self._session, job_id)

    async def export_drafter(self, job_id: str, directory: str, *, step: int) -> Job:
        """Start writing the drafter of a checkpoint."""
        return await operations_training.start_export(self._session, job_id, directory, step=step)
