"""A supervisor that is killed at a labelled point of its life: `python -I crashing_supervisor.py LABEL -I supervisor.py DIRECTORY`."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remote.jobs import locks, supervisor, work


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> Callable[[], None]:
    def patch() -> None:
        real = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: (die() if when(*a) else None) or real(*a, **k))

    return patch


def after(owner: Any, name: str) -> Callable[[], None]:
    def patch() -> None:
        real = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: (real(*a, **k), die()))

    return patch


def linking(record: str) -> Callable[..., bool]:
    return lambda _source, destination: Path(destination).name == record


NEVER_STARTED: dict[str, Callable[[], None]] = {
    "before its lock": before(locks, "take"),
    "holding its lock": after(locks, "take"),
    "before the fork": before(supervisor, "ForkedWork"),
    "the work waits at the gate": before(supervisor.Supervisor, "_record_start"),
    "the start record is half written": before(os, "link", linking("started.json")),
}
"""A kill here leaves a reservation that may be started again."""

NEVER_RELEASED: dict[str, Callable[[], None]] = {
    "the start is on record, the gate is shut": after(supervisor.Supervisor, "_record_start"),
}
"""A kill here leaves a job that did nothing and is never started again under its name."""

RELEASED: dict[str, Callable[[], None]] = {
    "the gate is open": after(work.ForkedWork, "release"),
    "before it says running": before(supervisor.Supervisor, "run"),
    "while the work runs": before(work.ForkedWork, "wait"),
    "the work has ended": before(supervisor.Supervisor, "_sweep_strays"),
    "the strays are swept": after(supervisor.Supervisor, "_sweep_strays"),
    "the run's jobs are stopped": after(supervisor.Supervisor, "_stop_children"),
    "the exit code is collected": after(work.ForkedWork, "collect"),
    "before the outcome is judged": before(supervisor.Supervisor, "_record_exit"),
    "the exit record is half written": before(os, "link", linking("exit.json")),
}
"""A kill here leaves work that runs or has run: its outputs say how it went."""

RECORDED: dict[str, Callable[[], None]] = {
    "the exit is on record": after(supervisor.Supervisor, "_record_exit"),
    "before it gives its lock back": before(locks, "give_back"),
}
"""A kill here changes nothing."""

POINTS = {**NEVER_STARTED, **NEVER_RELEASED, **RELEASED, **RECORDED}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    sys.exit(supervisor.main(Path(sys.argv[-1]).resolve()))
