"""One reading of the host. `None` means not known, never zero. Utilisations and fractions are 0 to 1."""

from typing import Literal

from remote.protocol.base import Message


class HostSample(Message, frozen=True, kw_only=True):
    """Processor, memory, shared memory, network and disk throughput."""

    cpu_utilization: list[float]
    cpu_model: str
    load_1m: float
    memory_used_bytes: int
    memory_total_bytes: int
    shm_used_bytes: int | None
    shm_total_bytes: int | None
    network_rx_bytes_per_s: float | None
    network_tx_bytes_per_s: float | None
    disk_read_bytes_per_s: float | None
    disk_write_bytes_per_s: float | None


class GpuSample(Message, frozen=True, kw_only=True):
    """One device as NVML sees it; `gpu_index` is NVML's index, not the CUDA ordinal. `error` names a lost device's fault."""

    gpu_index: int
    name: str
    uuid: str
    gpu_utilization: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    sm_clock_hz: float | None
    throttle_reasons: list[str]
    owner_job_id: str | None = None
    error: str | None = None


class MountSample(Message, frozen=True, kw_only=True):
    """A file system that Roost or a run writes to; the fill rate is a robust slope and None until it is known."""

    path: str
    used_bytes: int
    total_bytes: int
    free_bytes: int
    free_inodes: int | None
    fill_rate_bytes_per_s: float | None


class EngineSample(Message, frozen=True, kw_only=True):
    """A running inference server, from differences of its own counters."""

    job_id: str
    engine: str
    running_requests: int | None
    queued_requests: int | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    cache_usage: float | None
    acceptance_length: float | None


class TelemetrySample(Message, frozen=True, kw_only=True):
    """Everything at one moment; `gpu_source` says whether NVML answered and `gpu_detail` why not."""

    sampled_at: float
    host: HostSample
    gpu_source: Literal["nvml", "none", "error"]
    gpu_detail: str
    gpus: list[GpuSample]
    mounts: list[MountSample]
    engines: list[EngineSample]
