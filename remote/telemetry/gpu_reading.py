"""What is told of all devices at one moment, between the process that asks NVML and those who want to know; loads no NVML."""

from typing import Literal, NamedTuple

import msgspec

from remote.protocol.telemetry import GpuEvent, GpuSample, GpuTopology

GpuSource = Literal["nvml", "none", "error", "simulated"]

NOT_READ_YET = "not read yet"
"""The fault of a device whose turn has not come."""


class GpuReading(NamedTuple):
    """All devices at one moment; `detail` says in a sentence why there are none; `events` each come once."""

    source: GpuSource
    detail: str
    gpus: list[GpuSample]
    events: list[GpuEvent] = []


class ReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the process that asks NVML goes about it; times in seconds.

    `kernel_log_after` is the number of the last record of the kernel's log that an earlier process has told.
    """

    period_s: float = 1.0
    health_every_s: float = 10.0
    stuck_after_s: float = 1.5
    retry_every_s: float = 30.0
    initialize_every_s: float = 10.0
    renew_after_s: float = 300.0
    kernel_log: str = "/dev/kmsg"
    kernel_log_after: int = -1


class ReaderReport(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the process that asks NVML, one a period; `topology` comes once, when it is known."""

    source: GpuSource
    detail: str = ""
    gpus: list[GpuSample] = []
    events: list[GpuEvent] = []
    topology: GpuTopology | None = None
    kernel_log_after: int = -1


def lost_gpu(index: int, identity: tuple[str, str], error: str, *, sampled_at: float | None = None) -> GpuSample:
    """A device of this name and UUID that is known to be there and does not answer."""
    name, uuid = identity
    return GpuSample(
        gpu_index=index,
        name=name,
        uuid=uuid,
        gpu_utilization=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        power_watts=None,
        power_limit_watts=None,
        temperature_celsius=None,
        sm_clock_hz=None,
        throttle_reasons=[],
        error=error,
        sampled_at=sampled_at,
    )


def not_answering(gpu: GpuSample, error: str) -> GpuSample:
    """The device without its figures, which are those of the past; it still says when it last answered."""
    return lost_gpu(gpu.gpu_index, (gpu.name, gpu.uuid), error, sampled_at=gpu.sampled_at)
