"""Processor, memory, network and disks of the host, through psutil and /proc."""

import os
import platform
import time
from collections.abc import Hashable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from remote.protocol.telemetry import HostSample
from remote.telemetry.rates import CounterRates

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - its size is read, nothing is written there


class CoreTimes(NamedTuple):
    """Seconds that a core has spent busy and in all since the start of the host."""

    busy: float
    total: float


class HostReader:
    """Reads the host; rates and utilisations are differences from the reading before, unknown at the first."""

    def __init__(self) -> None:
        self._cpu_model = read_cpu_model()
        self._cores: list[CoreTimes] = []
        self._rates = CounterRates()

    def read(self) -> HostSample:
        """A reading of now."""
        before, self._cores = self._cores, core_times()
        rates = self._rates.advance(time.monotonic(), {**_network_bytes(), **_disk_bytes()})
        memory = psutil.virtual_memory()
        shared = _shared_memory()
        return HostSample(
            cpu_utilization=core_utilization(before, self._cores),
            cpu_model=self._cpu_model,
            load_1m=os.getloadavg()[0],
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            shm_used_bytes=None if shared is None else shared[0],
            shm_total_bytes=None if shared is None else shared[1],
            network_rx_bytes_per_s=rates.get("rx"),
            network_tx_bytes_per_s=rates.get("tx"),
            disk_read_bytes_per_s=rates.get("read"),
            disk_write_bytes_per_s=rates.get("write"),
        )


def core_utilization(before: Sequence[CoreTimes], after: Sequence[CoreTimes]) -> list[float]:
    """The busy share of each core between two readings, 0 to 1; empty when the cores differ or no time passed."""
    if len(before) != len(after) or any(new.total <= old.total for old, new in zip(before, after, strict=True)):
        return []
    shares = ((new.busy - old.busy) / (new.total - old.total) for old, new in zip(before, after, strict=True))
    return [round(min(1.0, max(0.0, share)), 3) for share in shares]


def read_cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel tells it, else the machine type."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.machine() or "unknown processor")


def core_times() -> list[CoreTimes]:
    """Each core's times; what a hypervisor took away counts as busy."""
    found = []
    for times in psutil.cpu_times(percpu=True):
        # The kernel counts guest time within user and nice as well.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        found.append(CoreTimes(total - times.idle - getattr(times, "iowait", 0.0), total))
    return found


def _network_bytes() -> dict[Hashable, float | None]:
    try:
        interfaces = psutil.net_io_counters(pernic=True)
    except OSError:
        return {}
    outward = [counters for name, counters in interfaces.items() if name != "lo"]
    return {"rx": sum(one.bytes_recv for one in outward), "tx": sum(one.bytes_sent for one in outward)}


def _disk_bytes() -> dict[Hashable, float | None]:
    """Only whole, physical disks: partitions, loops and the device mapper would count the same bytes again."""
    try:
        disks = psutil.disk_io_counters(perdisk=True) or {}
    except OSError:
        return {}
    physical = [counters for name, counters in disks.items() if _is_physical(name)]
    if not physical:
        return {}
    return {"read": sum(one.read_bytes for one in physical), "write": sum(one.write_bytes for one in physical)}


@cache
def _is_physical(disk: str) -> bool:
    return Path("/sys/block", disk, "device").exists()


def _shared_memory() -> tuple[int, int] | None:
    try:
        usage = psutil.disk_usage(_SHARED_MEMORY)
    except OSError:
        return None
    return usage.used, usage.total
