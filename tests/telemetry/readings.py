"""Readings made up for tests."""

from typing import Any

from remote.protocol.telemetry import (
    EngineSample,
    GpuSample,
    HostSample,
    JobSample,
    MountSample,
    TelemetrySample,
)

T0 = 1_784_367_300.0


def host(**changes: Any) -> HostSample:
    """A host of two cores."""
    values: dict[str, Any] = {
        "cpu_utilization": [0.5, 0.25],
        "cpu_model": "A CPU",
        "load_1m": 1.0,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 1 << 34,
        "shm_used_bytes": 0,
        "shm_total_bytes": 1 << 33,
        "network_rx_bytes_per_s": 0.0,
        "network_tx_bytes_per_s": 0.0,
        "disk_read_bytes_per_s": 0.0,
        "disk_write_bytes_per_s": 0.0,
    }
    return HostSample(**values | changes)


def gpu(index: int = 0, **changes: Any) -> GpuSample:
    """A device at work."""
    values: dict[str, Any] = {
        "gpu_index": index,
        "name": "card",
        "uuid": f"GPU-{index}",
        "gpu_utilization": 0.5,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 1 << 36,
        "power_watts": 300.0,
        "power_limit_watts": 600.0,
        "temperature_celsius": 60.0,
        "sm_clock_hz": 2e9,
        "throttle_reasons": [],
    }
    return GpuSample(**values | changes)


def mount(path: str = "/data", **changes: Any) -> MountSample:
    """A disk that is half full and does not fill."""
    values: dict[str, Any] = {
        "path": path,
        "used_bytes": 1 << 39,
        "total_bytes": 1 << 40,
        "free_bytes": 1 << 39,
        "free_inodes": 1 << 20,
        "fill_rate_bytes_per_s": 0.0,
    }
    return MountSample(**values | changes)


def engine(**changes: Any) -> EngineSample:
    """A server without requests."""
    values: dict[str, Any] = {
        "job_id": "server-1",
        "engine": "sglang",
        "running_requests": 0,
        "queued_requests": 0,
        "prefill_tokens_per_s": 0.0,
        "decode_tokens_per_s": 0.0,
        "cache_usage": 0.0,
        "acceptance_length": None,
    }
    return EngineSample(**values | changes)


def job(**changes: Any) -> JobSample:
    """A training of one process."""
    values: dict[str, Any] = {
        "job_id": "training-1",
        "agent": "training",
        "run_id": None,
        "process_count": 1,
        "cpu_utilization": 1.0,
        "memory_bytes": 1 << 30,
    }
    return JobSample(**values | changes)


def sample(at: float = T0, **changes: Any) -> TelemetrySample:
    """A reading of a host without devices, `at` seconds since the epoch."""
    values: dict[str, Any] = {
        "sampled_at": at,
        "host": host(),
        "gpu_source": "none",
        "gpu_detail": "",
        "gpus": [],
        "mounts": [],
        "engines": [],
    }
    return TelemetrySample(**values | changes)
