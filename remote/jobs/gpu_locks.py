"""The locks of GPUs, host-wide, as a job's supervisor holds them. Standard library only."""

import os
from pathlib import Path
from typing import Any

from remote.jobs import locks, plain_json


def gpu_lock(directory: Path, index: int) -> Path:
    """The lock of the device that NVML calls `index`; its content names the job that had it last."""
    return directory / f"gpu{index}.lock"


def take_gpus(job: Path, launch: dict[str, Any], timeout_s: float) -> list[int]:
    """Lock every device that `launch` gives to the job in the directory `job`; their descriptors. Raises LockTimeout."""
    taken: list[int] = []
    holder = plain_json.encode({"root": str(job.parents[1]), "job_id": job.name})
    try:
        for index in launch.get("gpus", []):
            descriptor = locks.take(gpu_lock(Path(launch["gpu_locks"]), int(index)), timeout_s)
            taken.append(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder, 0)
    except OSError:
        release(taken)
        raise
    return taken


def release(taken: list[int]) -> None:
    """Let others have the devices."""
    while taken:
        os.close(taken.pop())
