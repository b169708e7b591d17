"""What stands between a job and a device: a union in which each variant names its reason, and the choice among devices; pure."""

from collections.abc import Sequence

import msgspec

from remote.errors import Precondition
from remote.jobs.gpu_demand import GpuDemand
from remote.protocol.ids import device_ranges


class Holder(msgspec.Struct, frozen=True):
    """The job that a device was last given to; its supervisor writes this into the device's lock."""

    root: str
    job_id: str


class Free(msgspec.Struct, frozen=True):
    """Nobody has it."""


class Leased(msgspec.Struct, frozen=True):
    """The supervisor of a job holds its lock; `holder` None where the lock does not say whose."""

    holder: Holder | None


class LeftBehind(msgspec.Struct, frozen=True):
    """Nobody holds its lock, but processes of the job that had it live on; `fleeting` while a supervisor is ending them."""

    holder: Holder
    pids: tuple[int, ...]
    fleeting: bool = False


class Occupied(msgspec.Struct, frozen=True):
    """Something that is no job of ours computes there or holds memory; `fleeting` where it may be on its way out."""

    by: str
    fleeting: bool


class Unusable(msgspec.Struct, frozen=True):
    """The driver cannot tell or the device is lost."""

    error: str


Device = Free | Leased | LeftBehind | Occupied | Unusable


def choose(devices: Sequence[Device], demand: GpuDemand) -> list[int] | None:
    """The devices to give: those that are named, else the lowest free ones; None when they cannot be had."""
    asked = demand.indices or range(len(devices))
    free = [index for index in asked if index < len(devices) and isinstance(devices[index], Free)]
    enough = len(free) == len(demand.indices) if demand.indices else len(free) >= demand.count
    return free[: demand.count] if enough else None


def refusal(job_id: str, root: str, devices: Sequence[Device], demand: GpuDemand) -> Precondition:
    """Why `job_id` below `root` does not get its devices: who has which, and what to do about the first of them."""
    if missing := [index for index in demand.indices if index >= len(devices)]:
        return Precondition(f"{job_id} asks for {_name(missing)}, but this host has {len(devices)} GPUs")
    asked = list(demand.indices or range(len(devices)))
    in_the_way: dict[Device, list[int]] = {}
    for index in asked:
        if not isinstance(devices[index], Free):
            in_the_way.setdefault(devices[index], []).append(index)
    words = "; ".join(f"{_name(indices)}: {_describe(device, root)}" for device, indices in in_the_way.items())
    free = len(asked) - sum(map(len, in_the_way.values()))
    wish = _name(demand.indices) if demand.indices else f"{demand.count} GPU{'s' if demand.count > 1 else ''}"
    sentence = f"{job_id} needs {wish}, of which {free}" if demand.indices else f"{job_id} needs {wish}; {free}"
    hint, command = next((_advise(device, root) for device in in_the_way), ("Ask for fewer GPUs.", None))
    state = "is" if free == 1 else "are"
    among = "" if demand.indices else f" of {len(devices)}"
    return Precondition(
        f"{sentence}{among} {state} free" + (f": {words}" if words else ""), hint=hint, next_command=command
    )


def may_change_soon(devices: Sequence[Device]) -> bool:
    """Whether waiting can help: what is left of a job is being ended, or has just ended and its memory is freed a moment later."""
    return any(isinstance(device, (Occupied, LeftBehind)) and device.fleeting for device in devices)


def _describe(device: Device, root: str) -> str:
    match device:
        case Free():
            return "free"
        case Leased(holder=holder):
            return f"leased to {_job(holder, root)}" if holder else "leased to a job whose name its lock does not say"
        case LeftBehind(holder=holder, pids=pids):
            noun = "process" if len(pids) == 1 else "processes"
            return f"used by {noun} {', '.join(map(str, pids))}, left behind by {_job(holder, root)}"
        case Occupied(by=by):
            return f"used by {by}"
        case Unusable(error=error):
            return f"unusable: {error}"


def _advise(device: Device, root: str) -> tuple[str, str | None]:
    match device:
        case Leased(holder=Holder(root=there, job_id=job_id)) if there == root:
            return "Wait until it is over, or stop it.", f"roost status {job_id}"
        case LeftBehind(holder=Holder(root=there, job_id=job_id)) if there == root:
            return "Stop that job: what is left of it is ended.", f"roost stop {job_id} --confirm {job_id}"
        case Leased() | LeftBehind():
            return "It is a job of another root on this host: stop it there.", None
        case Occupied():
            return (
                "Roost ends nothing that it did not start: end it yourself, or ask for fewer GPUs.",
                "roost telemetry",
            )
        case Unusable():
            return "`nvidia-smi` on the host says more; a lost device needs a reset or a reboot.", "roost telemetry"
        case Free():
            return "Ask for fewer GPUs.", None


def _job(holder: Holder, root: str) -> str:
    return f"the job {holder.job_id}" + ("" if holder.root == root else f" (below {holder.root})")


def _name(indices: Sequence[int]) -> str:
    return f"GPU {device_ranges(indices)}"
