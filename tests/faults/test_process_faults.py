"""What the kernel, the container and other people do to a job's processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.jobs import process
from remote.protocol.jobs import Finished, Job, Lost, Running, Unkillable
from tests.faults.test_supervisor_killed import processes_of
from tests.jobs.test_supervised_jobs import SLEEP
from tests.jobs.workshop import Workshop

MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
UNIFIED_CGROUPS = Path("/sys/fs/cgroup")


def started(workshop: Workshop, job_id: str) -> dict:
    return json.loads((workshop.store.directory(job_id) / "started.json").read_bytes())


def is_finished(job: Job) -> bool:
    return isinstance(job.state, Finished)


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 64 MiB, below this process's own or the root."""
    unified = (UNIFIED_CGROUPS / "cgroup.controllers").exists()
    group = (UNIFIED_CGROUPS if unified else MEMORY_CGROUPS) / f"roost-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(64 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group
    deadline = time.monotonic() + 30
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


def test_the_out_of_memory_killer_is_named(workshop: Workshop, small_cgroup: Path) -> None:
    greedy = "hoard = []\nwhile True:\n    hoard.append(b'x' * (1 << 20))"
    pid = os.fork()
    if pid == 0:
        (small_cgroup / "cgroup.procs").write_text(str(os.getpid()))
        workshop.start("greedy", greedy)
        os._exit(0)
    os.waitpid(pid, 0)
    state = workshop.until("greedy", is_finished).state
    assert (state.outcome, state.signal) == ("failed", signal.SIGKILL)
    assert "out-of-memory killer" in state.reason


def test_skypilot_287_a_killed_job_is_seen_and_nobody_is_blamed(workshop: Workshop) -> None:
    pid = workshop.start("victim", SLEEP).state.pid
    os.kill(pid, signal.SIGKILL)
    state = workshop.until("victim", is_finished).state
    assert "killed by signal 9 (SIGKILL); nobody asked for it" in state.reason


def test_a_pid_that_was_used_again_is_not_taken_for_the_work(workshop: Workshop) -> None:
    """The record of a lost job is made to name a living process of somebody else, as after a wrap of the pids."""
    workshop.start("old", SLEEP)
    record = started(workshop, "old")
    for victim in (record["supervisor_pid"], record["pid"]):
        os.kill(victim, signal.SIGKILL)
    workshop.until("old", lambda job: isinstance(job.state, Lost))
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        path = workshop.store.directory("old") / "started.json"
        path.write_text(json.dumps({**record, "pid": bystander.pid}))
        assert isinstance(workshop.store.get("old").state, Lost)
        workshop.store.recover_all()
        workshop.until_file(workshop.store.directory("old") / "lost.json")
        workshop.stop("old")
        assert bystander.poll() is None, "a stranger with the work's old pid is left alone"
    finally:
        bystander.kill()
        bystander.wait()


def in_a_container(workshop: Workshop, program: str) -> "subprocess.Popen[bytes]":
    """Run Python in a pid namespace of its own, as a container does; its end is the container's."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", program]
    probe = subprocess.run([*command[:5], "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no pid namespace can be made here: {probe.stderr.decode()}")
    environment = {**os.environ, "PYTHONPATH": str(workshop.store.release)}
    return subprocess.Popen(
        command, cwd=workshop.store.release, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


CONTAINER = """
from pathlib import Path
from tests.jobs.workshop import Workshop
import sys
shop = Workshop(Path({root!r}))
{act}
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_container_restart_makes_its_jobs_lost_and_nothing_runs_twice(workshop: Workshop) -> None:
    start = f"shop.start('inside', {SLEEP!r}); shop.until('inside', lambda job: job.last_line == 'asleep')"
    container = in_a_container(workshop, CONTAINER.format(root=str(workshop.root), act=start))
    assert container.stdout.readline() == b"ready\n"
    assert isinstance(workshop.store.get("inside").state, Running), "its lock is held, wherever one looks from"
    container.kill()
    container.communicate()
    workshop.wait_for(lambda: not processes_of(workshop))
    heartbeat = workshop.store.directory("inside") / "heartbeat"
    os.utime(heartbeat, (time.time() - 60, time.time() - 60))
    job = workshop.until("inside", lambda job: isinstance(job.state, Lost))
    assert "restarted" in job.state.reason
    workshop.store.recover_all()
    workshop.until_file(workshop.store.directory("inside") / "lost.json")
    assert not processes_of(workshop)
    again = workshop.store.start("inside", workshop.spec(SLEEP), actor="ben", op_id="again")
    assert isinstance(again.state, Lost), "the same name is never started twice"


def test_skypilot_4318_stopping_one_job_leaves_its_neighbours_alone(workshop: Workshop) -> None:
    for name in ("left", "middle", "right"):
        workshop.start(name, SLEEP)
        workshop.until(name, lambda job: job.last_line == "asleep")
    workshop.stop("middle")
    workshop.until("middle", is_finished)
    assert all(isinstance(workshop.store.get(name).state, Running) for name in ("left", "right"))


def test_pytorch_67538_no_hangup_reaches_a_job(workshop: Workshop) -> None:
    """The work has no terminal and a session of its own: a hangup of the one who started it stops at him."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        job = workshop.start("launched", SLEEP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.killpg(0, signal.SIGHUP)
        os._exit(int(job.job_id == "never"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGHUP
    job = workshop.until("launched", lambda job: job.last_line == "asleep")
    assert isinstance(job.state, Running)
    status = Path(f"/proc/{job.state.pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert status[4] == "0", "no controlling terminal"


def test_ansible_87090_the_record_of_a_stop_is_not_raced_by_the_work(workshop: Workshop) -> None:
    """The work is ended before its outcome is written, so a late result cannot turn a stop into a success."""
    late = """
import json, signal, sys
def on_stop(*_):
    json.dump({"type": "job_result", "outputs": [], "summary": {}}, open("result.json", "w"))
    sys.exit(0)
signal.signal(signal.SIGTERM, on_stop)
print("ready", flush=True)
signal.pause()
"""
    workshop.start("late", late)
    workshop.until("late", lambda job: job.last_line == "ready")
    workshop.stop("late")
    state = workshop.until("late", is_finished).state
    assert (state.outcome, state.exit_code) == ("stopped", 0)


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A group whose frozen members survive SIGKILL, as processes stuck in the kernel do (cgroup v1)."""
    group = Path("/sys/fs/cgroup/freezer") / f"roost-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer group can be made here: {error}")
    yield group
    (group / "freezer.state").write_text("THAWED")
    deadline = time.monotonic() + 30
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.slow
def test_pytorch_185414_a_process_that_cannot_be_killed_is_named_and_its_job_ends_when_it_does(
    workshop: Workshop, freezer: Path
) -> None:
    pid = workshop.start("stuck", SLEEP, grace_s=0.2).state.pid
    (freezer / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    workshop.wait_for(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n")
    workshop.stop("stuck")
    job = workshop.until("stuck", lambda job: isinstance(job.state, Unkillable), 60.0)
    assert job.state.pids == [pid]
    (freezer / "freezer.state").write_text("THAWED")
    assert workshop.until("stuck", is_finished).state.outcome == "stopped"


def test_a_sweep_ends_though_a_process_survives_it(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = workshop.start("stuck", SLEEP).state.pid
    stuck = process.read_process(pid)
    assert stuck is not None
    monkeypatch.setattr(process, "send_signal", lambda process, number: None)
    assert process.sweep(lambda: [stuck], gentle_s=0.05, hard_s=0.05) == [stuck]
