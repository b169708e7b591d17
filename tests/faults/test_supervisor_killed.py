"""kill -9 of a supervisor at every labelled point of its life: one effect at most, no false success, nothing left running."""

import contextlib
import shlex
import sys
import threading
from pathlib import Path

import pytest

from remote.errors import RoostError
from remote.jobs import process
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Job, Lost, is_over
from tests.faults.crashing_supervisor import NEVER_RELEASED, NEVER_STARTED, POINTS, RECORDED
from tests.jobs.workshop import Workshop

PROGRAM = """
import json, subprocess, sys
open("effects", "a").write("x")
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("done", flush=True)
json.dump({"type": "job_result", "outputs": [], "summary": {}}, open("result.json", "w"))
"""


def crashing_python(directory: Path, label: str) -> str:
    """An interpreter whose supervisors die at `label`."""
    script = Path(__file__).with_name("crashing_supervisor.py")
    path = directory / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} {shlex.quote(label)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def ensure_from_four_consoles(workshop: Workshop) -> None:
    """Four consoles ask for the same job at once, as they would after a lost reply."""

    def ensure(number: int) -> None:
        store = JobStore(workshop.root, workshop.store.release, sys.executable, plan=workshop.store._starter._plan)
        store.start("job", workshop.spec(PROGRAM), actor=f"console-{number}", op_id=f"again-{number}")
        store.recover_all()

    consoles = [threading.Thread(target=ensure, args=(number,)) for number in range(4)]
    for console in consoles:
        console.start()
    for console in consoles:
        console.join()


def is_settled(workshop: Workshop, job: Job) -> bool:
    looked_after = (workshop.store.directory("job") / "lost.json").exists()
    return is_over(job.state) and (isinstance(job.state, Finished) or looked_after)


def processes_of(workshop: Workshop) -> list[str]:
    """The command lines of everything that still belongs to a job below the root."""
    found = []
    for one in process.every_process():
        with contextlib.suppress(OSError):
            if str(workshop.root).encode() in Path(f"/proc/{one.pid}/environ").read_bytes() and one.state not in "ZX":
                found.append(Path(f"/proc/{one.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize("label", POINTS)
def test_a_killed_supervisor_doubles_nothing_and_claims_nothing(workshop: Workshop, tmp_path: Path, label: str) -> None:
    store = JobStore(
        workshop.root, workshop.store.release, crashing_python(tmp_path, label), plan=workshop.store._starter._plan
    )
    with contextlib.suppress(RoostError):
        store.start("job", workshop.spec(PROGRAM), actor="ann", op_id="first")
    if label in RECORDED:
        workshop.until("job", lambda job: isinstance(job.state, Finished))
    ensure_from_four_consoles(workshop)
    job = workshop.until("job", lambda job: workshop.store.recover_all() or is_settled(workshop, job))
    workshop.wait_for(lambda: not processes_of(workshop))
    effects = workshop.store.directory("job") / "effects"
    if label in NEVER_RELEASED:
        assert isinstance(job.state, Lost)
        assert not effects.exists(), "work whose supervisor died before the gate opened never ran"
        return
    assert isinstance(job.state, Finished)
    assert (job.state.outcome, effects.read_text()) == ("succeeded", "x")
    exit_code_is_known = label in NEVER_STARTED or label in RECORDED
    assert job.state.exit_code == (0 if exit_code_is_known else None)
