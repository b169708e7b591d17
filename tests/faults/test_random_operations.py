"""Two consoles, an agent and bad luck on the same jobs, at random but from a seed: in the end every effect is there once at most.

After Jepsen's method (Kingsbury): random operations and faults, then the history is checked against invariants.
"""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from remote.errors import RoostError
from remote.jobs import process, records
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Lost
from tests.faults.test_supervisor_killed import processes_of
from tests.jobs.workshop import Workshop

JOBS = [f"job-{number}" for number in range(5)]
LINES = 120
PROGRAM = f"""
import json, os, subprocess, sys, time
descriptor = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(descriptor, b"x")
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
for number in range({LINES}):
    os.write(1, b"line %d\\n" % number)
    time.sleep(0.01)
json.dump({{"type": "job_result", "outputs": [], "summary": {{}}}}, open("result.json.part", "w"))
os.rename("result.json.part", "result.json")
"""
WHOLE_LOG = b"".join(b"line %d\n" % number for number in range(LINES))
STEPS = 25


class Operator:
    """A console or an agent: starts, stops and looks, and says a third of it twice, as after a lost reply."""

    def __init__(self, workshop: Workshop, name: str, seed: str) -> None:
        self.name = name
        self.workshop = workshop
        self.store = JobStore(workshop.root, workshop.store.release, sys.executable, plan=workshop.store._starter._plan)
        self.luck = random.Random(f"{seed}-{name}")
        self.told_started: set[str] = set()
        self.told_stopped: set[str] = set()

    def work(self) -> None:
        for number in range(STEPS):
            act = self.luck.choice([self.start, self.start, self.stop, self.look])
            job_id, op_id = self.luck.choice(JOBS), f"{self.name}-{number}"
            for _ in range(self.luck.choice([1, 1, 2])):
                with contextlib.suppress(RoostError):
                    act(job_id, op_id)
            time.sleep(self.luck.uniform(0, 0.2))

    def start(self, job_id: str, op_id: str) -> None:
        self.store.start(job_id, self.workshop.spec(PROGRAM, grace_s=1.0), actor=self.name, op_id=op_id)
        self.told_started.add(job_id)

    def stop(self, job_id: str, op_id: str) -> None:
        if self.luck.random() < 0.8:
            return
        self.store.stop(job_id, actor=self.name, op_id=op_id, reason="at random")
        self.told_stopped.add(job_id)

    def look(self, job_id: str, _op_id: str) -> None:
        self.store.get(job_id)
        self.store.recover_all()


class BadLuck:
    """Kills and suspends supervisors, kills work."""

    def __init__(self, workshop: Workshop, seed: str) -> None:
        self.workshop = workshop
        self.luck = random.Random(f"{seed}-bad")

    def work(self) -> None:
        for _ in range(STEPS):
            time.sleep(self.luck.uniform(0, 0.25))
            found = records.read_records(self.workshop.store.directory(self.luck.choice(JOBS)))
            supervisor = found.supervisor()
            if supervisor is None or found.start is None:
                continue
            work = (found.start.pid, found.start.start_time)
            for victim, number in self.luck.choice(
                [
                    [(supervisor, signal.SIGKILL)],
                    [(work, signal.SIGKILL)],
                    [(supervisor, signal.SIGKILL), (work, signal.SIGKILL)],
                    [(supervisor, signal.SIGSTOP)],
                    [(supervisor, signal.SIGCONT)],
                ]
            ):
                send(victim, number)


def send(victim: tuple[int, int], number: int) -> None:
    there = process.read_process(victim[0])
    if there is not None and there.start_time == victim[1]:
        process.send_signal(there, number)


def bring_to_rest(workshop: Workshop) -> None:
    """The faults end, nobody is suspended any more; all jobs must come to an end of their own accord."""
    for job_id in JOBS:
        supervisor = records.read_records(workshop.store.directory(job_id)).supervisor()
        if supervisor is not None:
            send(supervisor, signal.SIGCONT)

    def at_rest() -> bool:
        workshop.store.recover_all()
        return all(
            isinstance(job.state, Finished)
            or (isinstance(job.state, Lost) and (workshop.store.directory(job.job_id) / "lost.json").exists())
            for job in workshop.store.list()
        )

    workshop.wait_for(at_rest, 60.0)
    workshop.wait_for(lambda: not processes_of(workshop))


def check(workshop: Workshop, operators: list[Operator]) -> None:
    jobs = {job.job_id: job for job in workshop.store.list()}
    for job_id, job in jobs.items():
        directory = workshop.store.directory(job_id)
        effects = (directory / "effects").read_text() if (directory / "effects").exists() else ""
        log = (directory / "out.log").read_bytes() if (directory / "out.log").exists() else b""
        assert effects in ("", "x"), f"{job_id} took effect {len(effects)} times"
        assert WHOLE_LOG.startswith(log), f"the log of {job_id} is not what its work wrote"
        succeeded = isinstance(job.state, Finished) and job.state.outcome == "succeeded"
        if succeeded:
            assert effects == "x", f"{job_id} claims a success that never was"
            assert log == WHOLE_LOG
            assert (directory / "result.json").exists()
        if any(job_id in operator.told_stopped for operator in operators):
            assert isinstance(job.state, Finished | Lost)
    told = set().union(*(operator.told_started for operator in operators))
    assert told <= set(jobs), "a start that was answered is on record"
    assert sum(len(operator.told_started) for operator in operators), "the operators did something"


SEEDS = ["quick", *(pytest.param(f"long-{number}", marks=pytest.mark.slow) for number in range(6))]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_effect_is_there_once_at_most(workshop: Workshop, seed: str) -> None:
    operators = [Operator(workshop, name, seed) for name in ("ann", "ben", "agent")]
    threads = [threading.Thread(target=actor.work) for actor in (*operators, BadLuck(workshop, seed))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bring_to_rest(workshop)
    check(workshop, operators)
    workshop.wait_for(lambda: workshop.store.recover_all() or not list(Path(workshop.store._locks).iterdir()))
    assert not [name for name in os.listdir(workshop.root / "ops") if name.endswith(".part")]
