"""An allocation of a batch system, as its queue tells it: what a host of Slurm is reached through. Times in seconds since the epoch."""

import msgspec


class Pending(msgspec.Struct, frozen=True, kw_only=True, tag="pending"):
    """It waits in the queue for `reason` (Slurm's word, empty before it has looked); `starts_at` is the queue's estimate, when it has one."""

    reason: str
    starts_at: float | None


class Running(msgspec.Struct, frozen=True, kw_only=True, tag="running"):
    """It has its node; `ends_at` is when its time is over, None without a limit."""

    node: str
    ends_at: float | None


class Ending(msgspec.Struct, frozen=True, kw_only=True, tag="ending"):
    """It is on its way out; `word` is Slurm's state of it."""

    word: str


AllocationState = Pending | Running | Ending


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """The allocation that a host lives in; `slurm_job` is its number in Slurm's queue."""

    slurm_job: int
    state: AllocationState


QUEUE_FORMAT = "%i|%T|%r|%N|%S|%e"
"""`squeue --format`: number, state, reason, nodes, start, end."""


def read_queue(text: str) -> Allocation | None:
    """The allocation in the lines of `squeue --noheader` in `QUEUE_FORMAT` with times as seconds (`SLURM_TIME_FORMAT=%s`).

    Of several the one that runs, else the one that has waited longest. Raises ValueError for what are no such lines.
    """
    found = [_allocation(line.split("|")) for line in text.splitlines() if line.strip()]
    order = (Running, Pending, Ending)
    return min(found, key=lambda one: (order.index(type(one.state)), one.slurm_job), default=None)


def _allocation(fields: list[str]) -> Allocation:
    number, word, reason, node, start, end = (field.strip() for field in fields)
    match word:
        case "RUNNING":
            state: AllocationState = Running(node=node, ends_at=_time(end))
        case "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" | "STOPPED":
            state = Pending(reason=_reason(reason) if word == "PENDING" else word, starts_at=_time(start))
        case _:
            state = Ending(word=word)
    return Allocation(slurm_job=int(number), state=state)


def _reason(text: str) -> str:
    return "" if text == "None" else text


def _time(text: str) -> float | None:
    """None for N/A, NONE and what else stands for no time."""
    return float(text) if text.isdecimal() else None
