"""Processes by identity: who is alive, which ones belong to a job, and how they are ended. Standard library only, Linux.

A process is named by its pid and its start time (clock ticks since boot), because pids are used again. The identity of a
whole host, an incarnation, is its boot, its pid namespace and the start of its first process: a container restart keeps
the boot id.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

COOKIE_VARIABLE = "ROOST_JOB"
"""Carried by the work and by everything that it starts."""

SUPERVISOR_VARIABLE = "ROOST_SUPERVISOR"
"""Carried by a job's supervisor, so that no other job's sweep takes it for a stray."""

_GONE = ("Z", "X", "x")


class Process(NamedTuple):
    """A process as `/proc/<pid>/stat` shows it; `start_time` in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    start_time: int


def read_process(pid: int) -> Process | None:
    """The process `pid`, or None when there is none that this user may see."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def every_process() -> Iterator[Process]:
    """All processes that this user may see."""
    for entry in Path("/proc").iterdir():
        process = read_process(int(entry.name)) if entry.name.isdigit() else None
        if process is not None:
            yield process


def start_time(pid: int) -> int:
    """The start time of `pid`, 0 when it cannot be read."""
    process = read_process(pid)
    return 0 if process is None else process.start_time


def is_alive(pid: int, started: int) -> bool:
    """Whether the very process that started then is alive; a zombie is not."""
    process = read_process(pid)
    return process is not None and process.start_time == started and process.state not in _GONE


@lru_cache(maxsize=1)
def incarnation() -> str:
    """The identity of this host until its next boot or container restart."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{boot}:{namespace}:{start_time(1)}"


def send_signal(process: Process, number: int) -> None:
    """Signal exactly that process, not a later owner of its pid; one that is gone is left in peace."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:
        if start_time(process.pid) == process.start_time:
            _ignore_gone(os.kill, process.pid, number)
        return
    try:
        if start_time(process.pid) == process.start_time:
            _ignore_gone(signal.pidfd_send_signal, descriptor, number)
    finally:
        os.close(descriptor)


def signal_group(leader: int, number: int) -> None:
    """Signal the process group of `leader`; nothing happens when it is empty."""
    _ignore_gone(os.killpg, leader, number)


def _ignore_gone(call: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        call(target, number)
    except ProcessLookupError:
        return


def find_members(cookie: str, leader: int, leader_start: int, subreaper: int | None = None) -> list[Process]:
    """Every living process of a job: those with its cookie, those of its session, and what the subreaper adopted.

    `leader` is the work's process, which leads the job's session; where its pid belongs to somebody else by now, so may
    the session, and only the cookie counts. Another job's supervisor and work below the subreaper (a run starts jobs)
    belong to that job and are left out.
    """
    session = leader if start_time(leader) in (0, leader_start) else None
    living = [process for process in every_process() if process.state not in _GONE]
    members = {p.pid: p for p in living if p.session == session or _job_of(p.pid) == (cookie, False)}
    if subreaper is not None:
        members |= {p.pid: p for p in _descendants(living, subreaper, cookie)}
    members.pop(os.getpid(), None)
    return list(members.values())


def _descendants(living: list[Process], ancestor: int, cookie: str) -> Iterator[Process]:
    children: dict[int, list[Process]] = {}
    for process in living:
        children.setdefault(process.parent, []).append(process)
    todo = list(children.get(ancestor, ()))
    while todo:
        process = todo.pop()
        owner, supervises = _job_of(process.pid)
        if supervises or owner not in (None, cookie):
            continue
        yield process
        todo.extend(children.get(process.pid, ()))


def _job_of(pid: int) -> tuple[str | None, bool]:
    """The cookie in a process's environment, and whether it is a supervisor; (None, False) where neither can be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None, False
    owner = None
    for variable in environment.split(b"\0"):
        if variable.startswith(b"ROOST_"):
            name, _, value = variable.partition(b"=")
            if name.decode() == SUPERVISOR_VARIABLE:
                return value.decode(errors="replace"), True
            if name.decode() == COOKIE_VARIABLE:
                owner = value.decode(errors="replace")
    return owner, False


def sweep(
    find: Callable[[], list[Process]], *, gentle_s: float, hard_s: float, meanwhile: Callable[[], None] | None = None
) -> list[Process]:
    """End what `find` finds, by SIGTERM for `gentle_s`, then by SIGKILL for `hard_s`; returns those that survived both."""
    for number, patience_s in ((signal.SIGTERM, gentle_s), (signal.SIGKILL, hard_s)):
        deadline = time.monotonic() + patience_s
        told: set[tuple[int, int]] = set()
        while found := find():
            for process in found:
                if (process.pid, process.start_time) not in told:
                    send_signal(process, number)
                    told.add((process.pid, process.start_time))
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
            if meanwhile is not None:
                meanwhile()
        else:
            return []
    return find()
