"""Who uses the devices: asked of NVML once, in a process of its own, because a lost driver can block or kill whoever asks.

For the leases of jobs and the check before a run; the readings of every second come from `remote.telemetry.nvml`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from remote.telemetry.deadline import Deadline, NoAnswer
from remote.telemetry.nvml import NO_PACKAGE, error_code, pynvml, why_unreachable

_T = TypeVar("_T")

_CALL_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 15.0
_DRIVER_RESERVE_BYTES = 1 << 30
_UNKNOWABLE = (3, 4, 13)  # not supported, no permission, not in this driver
_RELEASE = Path(__file__).resolve().parents[2]


class DeviceProcess(msgspec.Struct, frozen=True):
    """A process that computes on a device; in a container the driver may count it by the host's numbers."""

    pid: int
    memory_bytes: int | None


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """One device by NVML's index: who uses it, or why that cannot be told; memory without what the driver reserves."""

    index: int
    name: str = ""
    uuid: str = ""
    minor: int | None = None
    memory_used_bytes: int | None = None
    processes: list[DeviceProcess] = []
    error: str | None = None


class Occupancy(msgspec.Struct, frozen=True):
    """All devices; `detail` says why there are none."""

    devices: list[DeviceUse] = []
    detail: str = ""


def ask_occupancy() -> Occupancy:
    """The devices as they are now, within seconds, whatever the driver does."""
    environment = {**os.environ, "PYTHONPATH": str(_RELEASE)}
    command = [sys.executable, "-m", "remote.telemetry.occupancy"]
    try:
        asked = subprocess.Popen(
            command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return Occupancy(detail=f"NVML could not be asked: {error}")
    try:
        answer, complaint = asked.communicate(timeout=_CALL_TIMEOUT_S + _START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        asked.kill()  # and not waited for: a process that is stuck in the driver does not end
        return Occupancy(detail="the NVIDIA driver does not answer; `nvidia-smi` on the host says more")
    try:
        return msgspec.json.decode(answer, type=Occupancy)
    except msgspec.DecodeError:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or [f"it ended with {asked.returncode}"]
        return Occupancy(detail=f"NVML could not be asked: {last[0]}")


def read_occupancy() -> Occupancy:
    """The devices as they are now; a call that hangs stays behind in a thread."""
    if pynvml is None:
        return Occupancy(detail=NO_PACKAGE)
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return Occupancy(detail=why_unreachable(error))
    questions = [Deadline(partial(_read_device, index)) for index in range(count)]
    for question in questions:
        question.begin()
    until = time.monotonic() + _CALL_TIMEOUT_S
    devices = [_collect(index, question, until) for index, question in enumerate(questions)]
    return Occupancy(devices, "" if count else "NVML answers and knows no device")


def _collect(index: int, question: Deadline[DeviceUse], until: float) -> DeviceUse:
    try:
        return question.collect(until - time.monotonic())
    except NoAnswer:
        return DeviceUse(index=index, error=f"the driver has not answered for {_CALL_TIMEOUT_S:.0f} s")


def _read_device(index: int) -> DeviceUse:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return DeviceUse(
            index=index,
            name=pynvml.nvmlDeviceGetName(handle),
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            minor=_ask(pynvml.nvmlDeviceGetMinorNumber, handle),
            memory_used_bytes=_memory_used(handle),
            processes=[
                DeviceProcess(process.pid, process.usedGpuMemory)
                for process in _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            ],
        )
    except pynvml.NVMLError as error:
        return DeviceUse(index=index, error=str(error))


def _memory_used(handle: object) -> int | None:
    """The old call counts what the driver reserves as used: an allowance for that is taken off."""
    memory = _ask(partial(pynvml.nvmlDeviceGetMemoryInfo, version=pynvml.nvmlMemory_v2), handle)
    if memory is not None:
        return int(memory.used)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else max(0, int(memory.used) - _DRIVER_RESERVE_BYTES)


def _ask(call: Callable[[object], _T], handle: object) -> _T | None:
    """What the driver answers, None where it never will."""
    try:
        return call(handle)
    except pynvml.NVMLError as error:
        if error_code(error) not in _UNKNOWABLE:
            raise
        return None


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_occupancy()))
    sys.stdout.flush()
    os._exit(0)  # a thread that is stuck in the driver would hold an ordinary end up
