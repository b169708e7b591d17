"""Jobs whose supervisor died or went silent get another one."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

from remote.errors import WorkFailed
from remote.jobs import locks, process, records
from remote.jobs.spawn import spawn_supervisor

_KILL_TIMEOUT_S = 10.0
_WAKE_TIMEOUT_S = 5.0


def is_looked_after(directory: Path) -> bool:
    """Whether a lost job's strays were swept and its outputs proved nothing: no supervisor can do more for it."""
    return (directory / "lost.json").exists()


def adopt(python: str, directory: Path) -> None:
    """Start another supervisor on a job that was started before; raises Precondition, WorkFailed."""
    planned = records.read_launch(directory)
    if planned is not None:
        spawn_supervisor(python, directory, planned.cookie)


def wake(python: str, directory: Path) -> None:
    """Have what is on record carried out by a supervisor that went silent: it was suspended, or it is replaced.

    Raises WorkFailed when it can be neither woken nor killed.
    """
    found = records.read_records(directory)
    supervisor = found.supervisor()
    if supervisor is None or found.launch is None:
        return
    frozen = process.read_process(supervisor[0])
    if frozen is None or frozen.start_time != supervisor[1]:
        return
    process.send_signal(frozen, signal.SIGCONT)
    if _until(lambda: records.modified_at(f"{directory}/heartbeat") != found.heartbeat, _WAKE_TIMEOUT_S):
        return
    process.send_signal(frozen, signal.SIGKILL)
    lock = Path(found.launch.lock)
    if not _until(lambda: not locks.is_held(lock), _KILL_TIMEOUT_S):
        raise WorkFailed(
            f"the supervisor of {directory.name} (process {frozen.pid}) is stuck in the kernel",
            hint="The stop is on record; this host needs to be recycled.",
        )
    adopt(python, directory)


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
