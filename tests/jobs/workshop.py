"""Real jobs of trivial work: the spec's `source` is the Python program that the job runs."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remote.jobs import process
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.jobs import Job
from remote.protocol.specs import MappingCopySpec, Spec

RELEASE = Path(__file__).resolve().parents[2]


def plan_program(spec: Spec) -> LaunchPlan:
    assert isinstance(spec, MappingCopySpec)
    return LaunchPlan(
        agent="mapping_copy", argv=[sys.executable, "-S", "-c", spec.source], stop_grace_s=float(spec.destination)
    )


class Workshop:
    """A store whose jobs run small programs, and the waiting for what they do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = JobStore(root, RELEASE, sys.executable, plan=plan_program)

    def spec(self, program: str, grace_s: float = 5.0) -> MappingCopySpec:
        return MappingCopySpec(source=program, destination=str(grace_s))

    def start(self, job_id: str, program: str, *, grace_s: float = 5.0, run_id: str | None = None) -> Job:
        return self.store.start(
            job_id, self.spec(program, grace_s), actor="ann", op_id=f"start-{job_id}", run_id=run_id
        )

    def stop(self, job_id: str) -> Job:
        return self.store.stop(job_id, actor="ben", op_id=f"stop-{job_id}", reason="enough")

    def until(self, job_id: str, condition: Callable[[Job], bool], timeout_s: float = 30.0) -> Job:
        deadline = time.monotonic() + timeout_s
        while not condition(job := self.store.get(job_id)):
            assert time.monotonic() < deadline, f"waited in vain; the job is {job}"
            time.sleep(0.02)
        return job

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    def until_file(self, path: Path, timeout_s: float = 30.0) -> str:
        deadline = time.monotonic() + timeout_s
        while not (path.exists() and path.read_text().endswith("\n")):
            assert time.monotonic() < deadline, f"{path} never came"
            time.sleep(0.02)
        return path.read_text()


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "root")
    yield shop
    end_everything_below(tmp_path)
    shutil.rmtree(shop.store._locks)


def end_everything_below(directory: Path) -> None:
    """Nothing that a test started may outlive it, whatever it asserted."""
    mark = os.fsencode(directory)
    for found in process.every_process():
        try:
            owned = Path(f"/proc/{found.pid}/environ").read_bytes() + Path(f"/proc/{found.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark in owned and found.pid != os.getpid():
            process.send_signal(found, signal.SIGKILL)
