"""What a link sends without being asked again: readings, job changes, progress and log bytes, as its last `Watch` says."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from remote.errors import NotFound, RoostError
from remote.jobs.logs import MAX_LOG_PAGE_BYTES, ProgressReader
from remote.jobs.store import JobStore
from remote.link.channel import Channel
from remote.link.telemetry import TelemetrySource
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import (
    ApprovalsWaiting,
    Failure,
    Heartbeat,
    JobChanged,
    LogData,
    LogTruncated,
    ProgressMade,
    Telemetry,
)
from remote.protocol.jobs import Job
from remote.protocol.progress import ProgressRecord
from remote.protocol.requests import LogPage, Watch

HEARTBEAT_S = 1.0
TELEMETRY_S = 0.25
JOBS_S = 0.5
TAIL_S = 0.2
RECOVERY_S = 5.0
AFTER_FAULT_S = 5.0
_PROGRESS_PAGE = 500
_log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[bool]]
"""One round of a stream; says whether there is more to send at once."""


class Streams:
    """The running streams of one link."""

    def __init__(self, store: JobStore, channel: Channel, telemetry: TelemetrySource) -> None:
        self._store = store
        self._channel = channel
        self._telemetry = telemetry
        self._lasting: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[str, Job] = {}
        self._told_waiting: ApprovalsWaiting | None = None

    def start(self) -> None:
        """Beat every second from now on, so that silence means a dead link, and look after jobs that lost their supervisor."""
        steps = ((self._beat, HEARTBEAT_S), (self._recover_jobs, RECOVERY_S))
        self._lasting = self._lasting or [asyncio.create_task(self._run(step, period_s)) for step, period_s in steps]

    def replace(self, watch: Watch) -> None:
        """Stream what `watch` says and nothing else; raises UsageError when it names something that is no job id."""
        for name in (*watch.logs, *watch.progress):
            self._store.directory(name)
        for task in self._tasks:
            task.cancel()
        steps: list[tuple[Step, float]] = []
        if watch.telemetry:
            steps.append((self._send_telemetry, TELEMETRY_S))
        if watch.jobs:
            steps.append((self._send_changed_jobs, JOBS_S))
            steps.append((self._send_waiting, JOBS_S))
        steps.extend((LogTail(self._store, self._channel, name, at).step, TAIL_S) for name, at in watch.logs.items())
        steps.extend(
            (ProgressTail(self._store, self._channel, name, after).step, TAIL_S)
            for name, after in watch.progress.items()
        )
        self._tasks = [asyncio.create_task(self._run(step, period_s)) for step, period_s in steps]

    def note_told(self, jobs: list[Job]) -> None:
        """The console took in this list: a job of it is sent again only when it differs."""
        self._told |= {job.job_id: job for job in jobs}

    async def _run(self, step: Step, period_s: float) -> None:
        try:
            await self._repeat(step, period_s)
        except Exception as error:  # noqa: BLE001 - the console must learn that a stream has ended, whatever ended it
            _log.exception("a stream has ended")
            sentence = f"the host stopped sending a stream: {type(error).__name__}: {error}"
            with contextlib.suppress(ConnectionError):
                await self._channel.send(
                    Failure(call_id=0, error=ErrorInfo(code=ErrorCode.FAILED, message=sentence, retryable=True))
                )

    async def _repeat(self, step: Step, period_s: float) -> None:
        while True:
            due = time.monotonic() + period_s
            more = False
            try:
                more = await step()
            except ConnectionError:
                return
            except (OSError, ValueError, RoostError):
                _log.exception("a round of a stream failed; it goes on in %g s", AFTER_FAULT_S)
                due += AFTER_FAULT_S
            if not more:
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _beat(self) -> bool:
        await self._channel.send(Heartbeat(at=time.time()))
        return False

    async def _recover_jobs(self) -> bool:
        await asyncio.to_thread(self._store.recover_all)
        return False

    async def _send_telemetry(self) -> bool:
        sample = await asyncio.to_thread(self._telemetry.newer)
        if sample is not None and not self._channel.is_behind:
            await self._channel.send(Telemetry(sample=sample))
        return False

    async def _send_changed_jobs(self) -> bool:
        for job in await asyncio.to_thread(self._store.list):
            if self._told.get(job.job_id) != job:
                await self._channel.send(JobChanged(job=job))
                self._told[job.job_id] = job
        return False

    async def _send_waiting(self) -> bool:
        inbox = self._store.inbox
        count = await asyncio.to_thread(inbox.waiting)
        waiting = ApprovalsWaiting(count=count, changed_at=inbox.changed_at())
        if waiting != (self._told_waiting or ApprovalsWaiting(count=0, changed_at=0.0)):
            await self._channel.send(waiting)
            self._told_waiting = waiting
        return False


class LogTail:
    """Follows one log from an absolute offset; a job that is not there yet may still come."""

    def __init__(self, store: JobStore, channel: Channel, job_id: str, offset: int) -> None:
        self._store = store
        self._channel = channel
        self._job_id = job_id
        self._cursor = max(0, offset)

    async def step(self) -> bool:
        """Send the next bytes, if any."""
        page = await asyncio.to_thread(self._read)
        if page is None:
            return False
        if page.size < self._cursor or self._cursor < page.start:
            await self._channel.send(LogTruncated(job_id=self._job_id, start=page.start))
            self._cursor = page.start
            return True
        if not page.data:
            return False
        await self._channel.send(LogData(job_id=self._job_id, offset=page.offset, data=page.data))
        self._cursor = page.offset + len(page.data)
        return True

    def _read(self) -> LogPage | None:
        try:
            return self._store.read_log(self._job_id, self._cursor, MAX_LOG_PAGE_BYTES)
        except NotFound:
            return None


class ProgressTail:
    """Follows the progress records of one job."""

    def __init__(self, store: JobStore, channel: Channel, job_id: str, after_seq: int) -> None:
        self._channel = channel
        self._job_id = job_id
        self._secrets = store.secrets
        self._reader = ProgressReader(store.directory(job_id) / "progress.jsonl", after_seq)

    async def step(self) -> bool:
        """Send the next records, if any."""
        records = await asyncio.to_thread(self._read)
        for record in records:
            await self._channel.send(ProgressMade(job_id=self._job_id, record=record))
        return bool(records)

    def _read(self) -> list[ProgressRecord]:
        records = self._reader.read(_PROGRESS_PAGE)
        self._secrets.redactor()
        return records
