"""The processes of a job as /proc shows them: real ones, compared with psutil."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from remote.telemetry.processes import ProcessReader, ProcessReading, members_of

FAMILY = """
import os, subprocess, sys, time
rank = lambda number: {**os.environ, "RANK": str(number)}
children = [subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], env=rank(n), start_new_session=bool(n)) for n in (0, 1)]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.kill()
"""
BUSY = "while True: pass"
LAZY = "import time; time.sleep(600)"


@pytest.fixture
def family():
    """A process in a session of its own with two ranks below it, the second in another session."""
    started = []

    def start(program: str):
        command = [sys.executable, "-S", "-c", FAMILY, program]
        leader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        started.append(leader)
        return leader.pid, [int(pid) for pid in leader.stdout.readline().split()]

    yield start
    for leader in started:
        for child in psutil.Process(leader.pid).children(recursive=True):
            child.kill()
        leader.kill()
        leader.communicate()


def test_a_job_is_its_session_and_all_that_descends_from_it(family):
    leader, ranks = family(LAZY)
    found = ProcessReader().read({"job": leader})["job"]
    assert {member.pid for member in found.members} == {leader, *ranks}
    assert {member.pid: member.rank for member in found.members} == {leader: None, ranks[0]: 0, ranks[1]: 1}


def test_memory_and_cores_are_those_of_the_kernel(family):
    leader, ranks = family(BUSY)
    reader = ProcessReader()
    assert reader.read({"job": leader})["job"].cpu_utilization is None
    before, since = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in ranks), time.monotonic()
    while sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in ranks) - before < 0.5:
        pass
    found = reader.read({"job": leader})["job"]
    used = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in (leader, *ranks)) - before
    assert found.cpu_utilization == pytest.approx(used / (time.monotonic() - since), rel=0.5)
    for member in found.members:
        assert member.memory_bytes == pytest.approx(psutil.Process(member.pid).memory_info().rss, rel=0.2)


def test_a_stopped_process_shows_its_state(family):
    leader, ranks = family(LAZY)
    reader = ProcessReader()
    reader.read({"job": leader})
    os.kill(ranks[1], signal.SIGSTOP)
    states = {}
    while states.get(ranks[1]) != "T":
        states = {member.pid: member.state for member in reader.read({"job": leader})["job"].members}
    assert states[ranks[0]] != "T"


def test_a_process_that_ended_is_left_out_at_once(family):
    leader, ranks = family(LAZY)
    reader = ProcessReader()
    reader.read({"job": leader})
    os.kill(ranks[0], signal.SIGKILL)
    while len(reader.read({"job": leader})["job"].members) == 3:
        pass
    assert {member.pid for member in reader.read({"job": leader})["job"].members} == {leader, ranks[1]}
    assert reader.read({}) == {}


def test_a_job_that_a_run_started_is_not_the_runs():
    def one(pid: int, parent: int, session: int) -> ProcessReading:
        return ProcessReading(pid, 1, "S", parent, session, 0.0, 0)

    every = [one(10, 1, 10), one(11, 10, 10), one(20, 11, 20), one(21, 20, 20), one(22, 21, 22), one(30, 1, 30)]
    assert members_of(10, [10, 20], every) == {10, 11}
    assert members_of(20, [10, 20], every) == {20, 21, 22}


def test_engines_title_their_ranks(tmp_path):
    for pid, title in ((7, b"sglang::scheduler_TP3\0"), (8, b"VLLM::Worker_TP0\0"), (9, b"sglang::detokenizer\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(title)
        (tmp_path / str(pid) / "environ").write_bytes(b"A=1\0")
        fields = f"{pid} (py (x) thon) S 1 7 7 {' '.join('0' for _ in range(46))}"
        (tmp_path / str(pid) / "stat").write_text(fields)
    members = ProcessReader(tmp_path).read({"server": 7})["server"].members
    assert {member.pid: member.rank for member in members} == {7: 3, 8: 0, 9: None}
