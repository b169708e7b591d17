"""Processes on a device by what can be known of them from here: in a container the driver's numbers may be the host's."""

import os
from pathlib import Path
from typing import NamedTuple

from remote.telemetry.figures import bytes_text
from remote.telemetry.occupancy import DeviceProcess, DeviceUse

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the first PID namespace (`PROC_PID_INIT_INO` in the kernel)."""


class Sight(NamedTuple):
    """What this process sees of a pid that NVML names."""

    command: str
    job: str | None
    is_certain: bool


def describe_processes(device: DeviceUse) -> tuple[str, bool]:
    """Who is on `device`, in words, and whether they may be on their way out: nobody that can be seen alive."""
    known = [(found, sight) for found in device.processes if (sight := look_at(found.pid, device.minor)) is not None]
    held = f", which holds {bytes_text(device.memory_used_bytes)}" if device.memory_used_bytes else ""
    if known:
        return ", ".join(_name(found, sight) for found, sight in known) + held, False
    numbers = ", ".join(str(found.pid) for found in device.processes)
    by_the_driver = f" (pid {numbers} by the driver's count)" if numbers else ""
    who = "a process that cannot be seen here" if is_first_namespace() else "a process that this container cannot see"
    return f"{who}{by_the_driver}{held}", True


def look_at(pid: int, minor: int | None) -> Sight | None:
    """The process `pid` as it is known here; None where there is none, or where the number is plainly another's."""
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    uses_device = _has_open(pid, minor)
    if uses_device is False and not is_first_namespace():
        return None
    return Sight(command, _job_of(pid), uses_device is True or is_first_namespace())


def is_first_namespace() -> bool:
    """Whether this process counts its pids as the driver does."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _has_open(pid: int, minor: int | None) -> bool | None:
    """Whether the process has the device open; None where that cannot be told."""
    if minor is None:
        return None
    try:
        return any(entry.readlink() == Path(f"/dev/nvidia{minor}") for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None


def _job_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    directories = [part.partition(b"=")[2] for part in environment if part.startswith(b"ROOST_JOB_DIR=")]
    return Path(os.fsdecode(directories[0])).name if directories else None


def _name(found: DeviceProcess, sight: Sight) -> str:
    of_job = f" of the job {sight.job}, which was not given this device" if sight.job else ""
    doubt = "" if sight.is_certain else ", if the driver counts as this container does"
    return f"process {found.pid} ({sight.command}{of_job}{doubt})"
