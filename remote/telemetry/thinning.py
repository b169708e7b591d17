"""Many readings become one that stands for them: rates and utilisations by their mean, levels by the last, troubles by their union; pure."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from remote.protocol.telemetry import (
    Diagnosis,
    EngineSample,
    GpuSample,
    HostSample,
    JobSample,
    MountSample,
    TelemetrySample,
)

_T = TypeVar("_T", bound=msgspec.Struct)

_MEANS: dict[type, tuple[str, ...]] = {
    HostSample: (
        "load_1m",
        "network_rx_bytes_per_s",
        "network_tx_bytes_per_s",
        "disk_read_bytes_per_s",
        "disk_write_bytes_per_s",
    ),
    GpuSample: (
        "gpu_utilization",
        "memory_utilization",
        "power_watts",
        "sm_clock_hz",
        "memory_clock_hz",
        "pcie_rx_bytes_per_s",
        "pcie_tx_bytes_per_s",
        "nvlink_rx_bytes_per_s",
        "nvlink_tx_bytes_per_s",
    ),
    EngineSample: ("prefill_tokens_per_s", "decode_tokens_per_s", "cache_usage"),
    JobSample: ("cpu_utilization", "samples_per_s", "tokens_per_s", "bytes_per_s"),
    MountSample: (),
}
_PEAKS: dict[type, tuple[str, ...]] = {
    HostSample: ("memory_used_bytes",),
    GpuSample: ("temperature_celsius", "memory_used_bytes"),
    EngineSample: ("running_requests", "queued_requests"),
    JobSample: ("memory_bytes", "progress_age_s"),
    MountSample: (),
}


class Thinner:
    """Gathers samples until their step is over; steps begin at multiples of `step_s`, so that rings agree."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._gathered: list[TelemetrySample] = []

    def add(self, sample: TelemetrySample) -> Iterator[TelemetrySample]:
        """Take a sample; yields the one of the step that it ends."""
        if self._step_s <= sample.period_s:
            yield from self.flush()
            yield sample
            return
        if self._gathered and self._step(sample) != self._step(self._gathered[-1]):
            yield from self.flush()
        self._gathered.append(sample)

    def flush(self) -> Iterator[TelemetrySample]:
        """The sample of the step so far, if it has any."""
        if self._gathered:
            yield combine(self._gathered)
            self._gathered = []

    def _step(self, sample: TelemetrySample) -> int:
        return int(sample.sampled_at // self._step_s)


def combine(samples: Sequence[TelemetrySample]) -> TelemetrySample:
    """One sample for all of them (at least one), dated by the last."""
    last = samples[-1]
    if len(samples) == 1:
        return last
    return replace(
        last,
        host=_combine_host([sample.host for sample in samples]),
        gpus=[
            _combine_gpu(same)
            for same in _by(samples, lambda sample: sample.gpus, lambda gpu: (gpu.gpu_index, gpu.uuid))
        ],
        mounts=[_merge(same) for same in _by(samples, lambda sample: sample.mounts, lambda mount: mount.path)],
        engines=[_merge(same) for same in _by(samples, lambda sample: sample.engines, lambda engine: engine.job_id)],
        jobs=[_merge(same) for same in _by(samples, lambda sample: sample.jobs, lambda job: job.job_id)],
        gpu_events=[event for sample in samples for event in sample.gpu_events],
        diagnoses=_all_diagnoses(samples),
        period_s=last.sampled_at - samples[0].sampled_at + samples[0].period_s,
    )


def _by(
    samples: Iterable[TelemetrySample], part: Callable[[TelemetrySample], list[_T]], key: Callable[[_T], Hashable]
) -> list[list[_T]]:
    """The readings of the same thing together, in the order in which the things came up."""
    found: dict[Hashable, list[_T]] = {}
    for sample in samples:
        for reading in part(sample):
            found.setdefault(key(reading), []).append(reading)
    return list(found.values())


def _combine_host(hosts: list[HostSample]) -> HostSample:
    width = len(hosts[-1].cpu_utilization)
    same = [host.cpu_utilization for host in hosts if len(host.cpu_utilization) == width]
    cores = [round(sum(core) / len(same), 3) for core in zip(*same, strict=True)]
    return replace(_merge(hosts), cpu_utilization=cores)


def _combine_gpu(gpus: list[GpuSample]) -> GpuSample:
    reasons = list(dict.fromkeys(reason for gpu in gpus for reason in gpu.throttle_reasons))
    return replace(_merge(gpus), throttle_reasons=reasons)


def _merge(readings: list[_T]) -> _T:
    """The last reading with the means and peaks of all."""
    last = readings[-1]
    changes: dict[str, Any] = {name: _mean(readings, name) for name in _MEANS[type(last)]}
    changes |= {name: _peak(readings, name) for name in _PEAKS[type(last)]}
    return replace(last, **changes)


def _known(readings: list[_T], name: str) -> list[Any]:
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


def _mean(readings: list[_T], name: str) -> float | None:
    known = _known(readings, name)
    return float(f"{sum(known) / len(known):.6g}") if known else None


def _peak(readings: list[_T], name: str) -> float | None:
    return max(_known(readings, name), default=None)


def _all_diagnoses(samples: Sequence[TelemetrySample]) -> list[Diagnosis]:
    """What held at any time of the step, each as it was told last."""
    found = {(d.code, d.subject, d.since): d for sample in samples for d in sample.diagnoses}
    return list(found.values())
