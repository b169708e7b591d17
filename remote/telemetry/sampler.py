"""One reading of everything, in at most a second."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remote.protocol.telemetry import EngineSample, GpuTopology, MountSample, TelemetrySample
from remote.telemetry.deadline import Deadline, NoAnswer
from remote.telemetry.engine import EngineEndpoint, EngineReader
from remote.telemetry.gpu_watch import GpuWatch
from remote.telemetry.host import HostReader
from remote.telemetry.mounts import MountReader

_BUDGET_S = 0.9


class Sampler:
    """Reads host, GPUs, mounts and engines; keeps what rates need from one reading to the next. Not for several threads."""

    def __init__(self, root: Path, gpus: GpuWatch | None = None) -> None:
        self._endpoints: list[EngineEndpoint] = []
        self._paths: Sequence[Path] = ()
        mounts = MountReader(root)
        self._host = HostReader()
        self._gpus = gpus or GpuWatch()
        self._mounts = Deadline(lambda: mounts.read(self._paths))
        self._engines = Deadline(EngineReader(lambda: self._endpoints).read)
        self._last_mounts: list[MountSample] = []

    def sample(self, endpoints: list[EngineEndpoint], paths: Sequence[Path] = ()) -> TelemetrySample:
        """A reading of now with the servers at `endpoints` and the mounts of `paths`.

        What hangs is left out or marked, so this returns within a second.
        """
        self._endpoints, self._paths = endpoints, paths
        until = time.monotonic() + _BUDGET_S
        self._gpus.start()
        parts = (self._mounts, self._engines) if endpoints else (self._mounts,)
        for part in parts:
            part.begin()
        sampled_at, host = time.time(), self._host.read()
        gpus = self._gpus.reading()
        return TelemetrySample(
            sampled_at=sampled_at,
            host=host,
            gpu_source=gpus.source,
            gpu_detail=gpus.detail,
            gpus=gpus.gpus,
            gpu_events=gpus.events,
            mounts=self._read_mounts(until),
            engines=self._read_engines(until) if endpoints else [],
        )

    def topology(self) -> GpuTopology | None:
        """How the devices are connected, None until it is known."""
        return self._gpus.topology()

    def has_asked_devices(self) -> bool:
        """Whether the driver has answered, or there is none."""
        return self._gpus.has_answered()

    def close(self) -> None:
        """End the process that reads the devices."""
        self._gpus.close()

    def _read_mounts(self, until: float) -> list[MountSample]:
        """A hung network mount leaves the last reading in place, with its fill rate unknown."""
        try:
            self._last_mounts = self._mounts.collect(until - time.monotonic())
        except NoAnswer:
            return [msgspec.structs.replace(mount, fill_rate_bytes_per_s=None) for mount in self._last_mounts]
        return self._last_mounts

    def _read_engines(self, until: float) -> list[EngineSample]:
        """Servers that do not answer in time are told as silent."""
        try:
            return self._engines.collect(until - time.monotonic())
        except NoAnswer:
            return [_silent(endpoint) for endpoint in self._endpoints]


def _silent(endpoint: EngineEndpoint) -> EngineSample:
    return EngineSample(
        job_id=endpoint.job_id,
        engine=endpoint.engine,
        running_requests=None,
        queued_requests=None,
        prefill_tokens_per_s=None,
        decode_tokens_per_s=None,
        cache_usage=None,
        acceptance_length=None,
        is_answering=False,
    )
