"""Readings of the host for one link: one sampler, because its rates are differences between its own readings."""

import threading
import time
from typing import TYPE_CHECKING

import msgspec

from remote.jobs.store import JobStore
from remote.protocol.jobs import Job, has_its_devices, is_over
from remote.protocol.progress import ServerReady
from remote.protocol.telemetry import TelemetrySample

if TYPE_CHECKING:
    from remote.telemetry.engine import EngineEndpoint
    from remote.telemetry.sampler import Sampler

_FIRST_INTERVAL_S = 0.5


class TelemetrySource:
    """Takes readings, one at a time."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._sampler: Sampler | None = None
        self._turn = threading.Lock()
        self._ready: dict[str, tuple[int, ServerReady | None]] = {}

    def read(self) -> TelemetrySample:
        """A reading; the first takes half a second longer, for rates need two."""
        with self._turn:
            sampler = self._sampler = self._sampler or self._open_sampler()
            return self._with_owners(sampler.sample())

    def _with_owners(self, sample: TelemetrySample) -> TelemetrySample:
        """A device belongs to the job that it was given to; the driver's pids may be those of another namespace."""
        if not sample.gpus:
            return sample
        live = [job for job in self._store.list() if job.gpus and has_its_devices(job.state)]
        owners = {index: job.job_id for job in live for index in job.gpus}
        gpus = [msgspec.structs.replace(gpu, owner_job_id=owners.get(gpu.gpu_index)) for gpu in sample.gpus]
        return msgspec.structs.replace(sample, gpus=gpus)

    def _open_sampler(self) -> "Sampler":
        """Imported at the first reading: where psutil or NVML cannot be loaded, all but telemetry still works."""
        from remote.telemetry.sampler import Sampler  # noqa: PLC0415

        sampler = Sampler(self._store.root, self._endpoints)
        sampler.sample()
        time.sleep(_FIRST_INTERVAL_S)
        return sampler

    def _endpoints(self) -> "list[EngineEndpoint]":
        from remote.telemetry.engine import EngineEndpoint  # noqa: PLC0415

        servers = [job for job in self._store.list() if job.agent == "server" and not is_over(job.state)]
        found = [(job.job_id, self._ready_server(job)) for job in servers]
        return [
            EngineEndpoint(job_id=job_id, engine=ready.engine, url=ready.url)
            for job_id, ready in found
            if ready is not None
        ]

    def _ready_server(self, job: Job) -> ServerReady | None:
        known = self._ready.get(job.job_id)
        if known is None or known[0] != job.progress_seq:
            events = [record.event for record in self._store.read_progress(job.job_id)]
            latest = next((event for event in reversed(events) if isinstance(event, ServerReady)), None)
            known = self._ready[job.job_id] = (job.progress_seq, latest)
        return known[1]
