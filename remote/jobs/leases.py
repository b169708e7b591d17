"""GPU leases: which devices a job gets, decided under one lock for all roots of this user on this host.

A job's supervisor holds `gpu<N>.lock` of each of its devices for life, so that a dead one frees them. Because the work of a
dead supervisor may still compute, a device counts as free only when no process of the job that had it last lives, of no
unfinished job of this root either, and when NVML shows nobody on it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remote.errors import Conflict, Precondition
from remote.jobs import locks, process, records
from remote.jobs.gpu_demand import DEVICE_ORDER, VISIBLE_DEVICES, GpuDemand
from remote.jobs.gpu_devices import (
    Device,
    Free,
    Holder,
    Leased,
    LeftBehind,
    Occupied,
    Unusable,
    choose,
    may_change_soon,
    refusal,
)
from remote.jobs.gpu_locks import gpu_lock
from remote.jobs.gpu_processes import describe_processes
from remote.jobs.records import UnreadableRecord
from remote.telemetry.occupancy import DeviceUse, Occupancy, ask_occupancy

IDLE_BYTES = 512 << 20
"""Memory in use that is taken for the driver's own and a display's; a CUDA program with a model holds far more."""

_CHOICE_TIMEOUT_S = 120.0
_PATIENCE_S = 10.0
_PAUSE_S = 0.5


class Claim(msgspec.Struct, frozen=True):
    """A job whose exit is not on record and the devices that it was given, with its living processes."""

    holder: Holder
    gpus: Sequence[int]
    pids: tuple[int, ...]
    is_being_swept: bool


class Leases:
    """The devices of this host as its jobs share them; `directory` holds the locks."""

    def __init__(
        self, directory: Path, *, ask: Callable[[], Occupancy] = ask_occupancy, patience_s: float = _PATIENCE_S
    ) -> None:
        self.directory = directory
        self._ask = ask
        self._patience_s = patience_s

    @contextmanager
    def lease(self, job: Path, demand: GpuDemand) -> Iterator[list[int]]:
        """Devices for the job in the directory `job`, kept from everybody else until its supervisor has had the time to lock them.

        Raises Precondition where the host has no such devices or others have them, Conflict when another choice takes
        too long.
        """
        if demand.count == 0:
            yield []
            return
        path = self.directory / "choice.lock"
        try:
            lock = locks.take(path, _CHOICE_TIMEOUT_S)
        except locks.LockTimeout as error:
            raise Conflict(f"another job is being given its GPUs: {error}", hint="Try again in a moment.") from error
        try:
            yield self._choose(job, demand)
        finally:
            os.close(lock)

    def _choose(self, job: Path, demand: GpuDemand) -> list[int]:
        deadline = time.monotonic() + self._patience_s
        while True:
            devices = self._look(job, demand)
            chosen = choose(devices, demand)
            if chosen is not None:
                return chosen
            if not may_change_soon(devices) or time.monotonic() >= deadline:
                raise refusal(job.name, str(job.parents[1]), devices, demand)
            time.sleep(_PAUSE_S)

    def _look(self, job: Path, demand: GpuDemand) -> list[Device]:
        found = self._ask()
        if not found.devices:
            raise no_devices(job.name, demand, found.detail)
        claims = list(_claims_below(job.parent, but=job))
        return [self._judge(device, claims) for device in found.devices]

    def _judge(self, device: DeviceUse, claims: list[Claim]) -> Device:
        lock = gpu_lock(self.directory, device.index)
        last = _read_holder(lock)
        if locks.is_held(lock):
            return Leased(last)
        if not _may_be_used(device):
            return Unusable(f"{VISIBLE_DEVICES} in this host's environment leaves it out")
        if last is not None:
            claims = [*claims, *_claim_of(Path(last.root) / "jobs" / last.job_id)]
        for claim in claims:
            if device.index in claim.gpus and claim.pids:
                return LeftBehind(claim.holder, claim.pids, claim.is_being_swept)
        if device.error is not None:
            return Unusable(device.error)
        held = device.memory_used_bytes or 0
        if device.processes or held > IDLE_BYTES:
            return Occupied(*describe_processes(device))
        return Free()


def no_devices(name: str, demand: GpuDemand, detail: str) -> Precondition:
    """The refusal of a host without GPUs."""
    return Precondition(
        f"{name} needs {demand.count} GPU{'s' if demand.count > 1 else ''}, but {detail}",
        hint="Mend that (in a container NVIDIA_DRIVER_CAPABILITIES must include utility), or set the devices to cpu.",
        next_command="roost telemetry",
    )


def device_environment(gpus: Sequence[int]) -> dict[str, str]:
    """What makes CUDA see these devices and no others, by the numbers that NVML gives them; nothing for work without GPUs."""
    if not gpus:
        return {}
    return {DEVICE_ORDER: "PCI_BUS_ID", VISIBLE_DEVICES: ",".join(map(str, gpus))}


def _may_be_used(device: DeviceUse) -> bool:
    """A person who shares a host may keep Roost to some devices in the environment of his login; names as CUDA knows them."""
    named = os.environ.get(VISIBLE_DEVICES)
    if named is None:
        return True
    names = [part.strip() for part in named.split(",")]
    return str(device.index) in names or any(device.uuid.startswith(name) for name in names if name.startswith("GPU-"))


def _claims_below(jobs: Path, *, but: Path) -> Iterator[Claim]:
    for launch in jobs.glob("*/launch.json"):
        if launch.parent != but:
            yield from _claim_of(launch.parent)


def _claim_of(job: Path) -> Iterable[Claim]:
    """Of a job whose end is on record nothing lives: its supervisor made sure of it first."""
    if any((job / end).exists() for end in ("exit.json", "lost.json")):
        return []
    try:
        found = records.read_records(job)
    except (UnreadableRecord, OSError):
        return []
    launch, start = found.launch, found.start
    if launch is None or start is None or not launch.gpus:
        return []
    if start.incarnation != process.incarnation():  # other pids, or none any more: what computes shows in NVML
        return []
    pids = tuple(sorted(member.pid for member in process.find_members(start.cookie, start.pid, start.start_time)))
    is_being_swept = locks.is_held(Path(launch.lock)) and not process.is_alive(start.pid, start.start_time)
    return [Claim(Holder(str(job.parents[1]), job.name), launch.gpus, pids, is_being_swept)]


def _read_holder(lock: Path) -> Holder | None:
    try:
        return msgspec.json.decode(lock.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
