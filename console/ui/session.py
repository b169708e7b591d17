"""What the screen needs of a host: the operations, as an interface that a recording can stand behind too."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from console import operations, operations_telemetry
from console.operations import Session
from console.state.link import LinkState
from remote.protocol.frames import Event
from remote.protocol.jobs import Job
from remote.protocol.reports import RunPlan, VerdictReport
from remote.protocol.storage import StorageReport
from remote.protocol.telemetry import GpuTopology, TelemetryHistory

ACTOR = "screen"


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


Connect = Callable[[], AbstractAsyncContextManager[HostSession]]
"""Opens the host; raises ConsoleError."""


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
        """Start what was planned."""
        return await operations.start_run(self._session, plan)

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
        return await operations.read_storage(self._session)
