"""The processes of jobs: how many, how busy, how large, and which of them are ranks.

All of /proc is looked through now and then, and only the members in between: a host with thousands of processes takes
tens of milliseconds for a full look.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOOK_EVERY_S = 5.0
_LOOK_SHARE = 0.002
"""Of the time may go into looking through /proc."""

_TITLE = re.compile(rb"(?:scheduler|Worker)_(?:DP\d+_)?TP(\d+)")
"""SGLang 0.5.23 titles a scheduler `sglang::scheduler_TP0`, vLLM 0.33 a worker `VLLM::Worker_TP0`."""

_RANK = re.compile(rb"(?:^|\0)RANK=(\d+)\0")
"""torchrun's variable (`torch/distributed/run.py`)."""


class ProcessReading(NamedTuple):
    """A process now; `cpu_s` is what it has used since it began, `rank` None where it is no one's peer."""

    pid: int
    started: int
    state: str
    parent: int
    session: int
    cpu_s: float
    memory_bytes: int
    rank: int | None = None


class JobProcesses(NamedTuple):
    """The processes of one job with the cores that each has kept busy since the reading before (None at its first)."""

    members: list[ProcessReading]
    busy_cores: dict[int, float | None]

    @property
    def cpu_utilization(self) -> float | None:
        """Cores kept busy by the whole job; None at the first reading."""
        known = [cores for cores in self.busy_cores.values() if cores is not None]
        return sum(known) if known else None


class ProcessReader:
    """Follows the processes of jobs by their first process; another job's first process and all below it is that job's."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._members: dict[str, set[int]] = {}
        self._leaders: dict[str, int] = {}
        self._ranks: dict[tuple[int, int], int | None] = {}
        self._before: dict[tuple[int, int], tuple[float, float]] = {}
        self._look_at = 0.0

    def read(self, leaders: Mapping[str, int]) -> dict[str, JobProcesses]:
        """A reading of now of the jobs whose first processes are `leaders`."""
        now = self._clock()
        if now >= self._look_at or leaders.keys() != self._leaders.keys():
            self._look(dict(leaders))
            cost = self._clock() - now
            self._look_at = now + max(_LOOK_EVERY_S, cost / _LOOK_SHARE)
        found: dict[str, JobProcesses] = {}
        seen: dict[tuple[int, int], tuple[float, float]] = {}
        for job_id, pids in self._members.items():
            members = [reading for pid in pids if (reading := read_process(self._proc, pid)) is not None]
            members = [one._replace(rank=self._ranks.get((one.pid, one.started))) for one in members]
            seen |= {(one.pid, one.started): (now, one.cpu_s) for one in members}
            found[job_id] = JobProcesses(members, {one.pid: self._busy(one, now) for one in members})
        self._before = seen
        return found

    def _busy(self, reading: ProcessReading, now: float) -> float | None:
        before = self._before.get((reading.pid, reading.started))
        if before is None or now <= before[0]:
            return None
        return round(max(0.0, reading.cpu_s - before[1]) / (now - before[0]), 3)

    def _look(self, leaders: dict[str, int]) -> None:
        """Find the members anew, and the rank of each."""
        every = [reading for pid in _pids(self._proc) if (reading := read_process(self._proc, pid)) is not None]
        self._leaders = leaders
        self._members = {job_id: members_of(leader, leaders.values(), every) for job_id, leader in leaders.items()}
        identities = {reading.pid: (reading.pid, reading.started) for reading in every}
        members = {identities[pid] for pids in self._members.values() for pid in pids if pid in identities}
        # A title is set some time after the start: who has no rank yet is asked again.
        known = {identity: rank for identity, rank in self._ranks.items() if identity in members and rank is not None}
        self._ranks = {who: known[who] if who in known else read_rank(self._proc, who[0]) for who in members}


def members_of(leader: int, leaders: Iterable[int], every: Iterable[ProcessReading]) -> set[int]:
    """The pids of a job: its first process, those of its session, and all that descends from either.

    What descends from another job's first process belongs to that job.
    """
    others = set(leaders) - {leader}
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    todo: list[int] = []
    for reading in every:
        children.setdefault(reading.parent, []).append(reading.pid)
        if leader in (reading.pid, reading.session):
            todo.append(reading.pid)
    while todo:
        pid = todo.pop()
        if pid not in found and pid not in others:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def read_process(proc: Path, pid: int) -> ProcessReading | None:
    """The process as /proc/<pid>/stat shows it (proc(5)); None where there is none, or a zombie."""
    try:
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = data[data.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessReading(
        pid=pid,
        started=int(fields[19]),
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def read_rank(proc: Path, pid: int) -> int | None:
    """Which of several equal processes it is, by the title that its engine gives it or by torchrun's variable."""
    for name, pattern in (("cmdline", _TITLE), ("environ", _RANK)):
        try:
            found = pattern.search((proc / str(pid) / name).read_bytes())
        except OSError:
            continue
        if found is not None:
            return int(found.group(1))
    return None


def _pids(proc: Path) -> list[int]:
    with os.scandir(proc) as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]
