"""The keeper of an allocation: what it starts outlives who asked, and ends with it."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remote.errors import Precondition
from remote.jobs.keeper import socket_path
from remote.protocol.codec import KEPT_VARIABLE
from remote.protocol.jobs import Finished, Running
from tests.jobs.workshop import RELEASE, Workshop

FOREVER = "import time; time.sleep(600)"


def start_keeper(workshop: Workshop) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "remote", "keep", "--root", str(workshop.root), "--actor", "ann"]
    return subprocess.Popen(command, cwd=RELEASE, stderr=subprocess.PIPE)


@pytest.fixture
def keeper(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A keeper of the workshop's root, and this process a step of its allocation."""
    kept = start_keeper(workshop)
    workshop.wait_for(socket_path(workshop.root).exists)
    monkeypatch.setenv(KEPT_VARIABLE, "1")
    yield kept
    kept.kill()
    kept.wait()


def test_the_keeper_is_the_ancestor_of_what_a_step_starts(
    workshop: Workshop, keeper: "subprocess.Popen[bytes]"
) -> None:
    workshop.start("job", FOREVER)
    job = workshop.until("job", lambda job: isinstance(job.state, Running))
    parent = subprocess.run(
        ["ps", "-o", "ppid=", "-p", str(_supervisor_of(workshop))], capture_output=True, text=True, check=True
    )
    assert int(parent.stdout) == keeper.pid
    assert job.created_by == "ann"
    workshop.stop("job")
    workshop.until("job", lambda job: isinstance(job.state, Finished))


def test_the_end_of_the_allocation_stops_its_jobs_and_waits_for_them(
    workshop: Workshop, keeper: "subprocess.Popen[bytes]"
) -> None:
    saving = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved'), sys.exit(0)))"
    workshop.start("training", f"{saving}\nprint('up', flush=True)\n{FOREVER}")
    workshop.wait_for(lambda: b"up" in (workshop.root / "jobs/training/out.log").read_bytes())
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(timeout=30) == 0
    state = workshop.store.get("training").state
    assert isinstance(state, Finished)
    assert b"saved" in (workshop.root / "jobs/training/out.log").read_bytes()
    assert [entry.outcome for entry in workshop.store.journal.read().entries if entry.action == "allocate"] == ["done"]


def test_a_step_whose_keeper_has_gone_starts_nothing(workshop: Workshop, keeper: "subprocess.Popen[bytes]") -> None:
    keeper.send_signal(signal.SIGTERM)
    keeper.wait(timeout=30)
    with pytest.raises(Precondition, match="nothing can be started in it"):
        workshop.start("job", FOREVER)


def test_one_root_has_one_keeper_on_a_node_and_a_dead_one_is_replaced(
    workshop: Workshop, keeper: "subprocess.Popen[bytes]"
) -> None:
    second = start_keeper(workshop)
    assert second.wait(timeout=30) == 1
    assert b"has a keeper on this node already" in (second.stderr.read() if second.stderr else b"")
    keeper.kill()
    keeper.wait()
    third = start_keeper(workshop)
    workshop.wait_for(lambda: _answers(workshop))
    try:
        workshop.start("job", "print('done')")
        workshop.until("job", lambda job: isinstance(job.state, Finished))
    finally:
        third.kill()
        third.wait()


def test_what_the_keeper_cannot_run_is_said(workshop: Workshop, keeper: "subprocess.Popen[bytes]") -> None:
    workshop.store._starter._python = "/nowhere/python"  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(Precondition, match="/nowhere/python cannot be run"):
        workshop.start("job", FOREVER)


def _answers(workshop: Workshop) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(socket_path(workshop.root))) == 0


def _supervisor_of(workshop: Workshop) -> int:

    return int(json.loads((workshop.root / "jobs/job/started.json").read_bytes())["supervisor_pid"])
