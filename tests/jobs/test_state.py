"""The recovery table, row by row."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.jobs.records import ExitRecord, PauseRecord, Records, StartRecord, StateRecord, StopRecord
from remote.jobs.state import Observation, derive_state, revision_of
from remote.protocol.jobs import (
    Finished,
    Foreign,
    Lost,
    Orphaned,
    Paused,
    Queued,
    Running,
    Stalled,
    Starting,
    Stopping,
    Unkillable,
)

HERE, ELSEWHERE = "boot:1:20", "boot:2:90"
CREATED, STARTED, BEAT, NOW = 100.0, 101.0, 199.0, 200.0

START = StartRecord(
    v=1,
    pid=42,
    start_time=7,
    supervisor_pid=41,
    supervisor_start_time=6,
    incarnation=HERE,
    cookie="c",
    started_at=STARTED,
)
STOP = StopRecord(requested_by="ann", requested_at=150.0, reason="tea")
PAUSE = PauseRecord(since=160.0, reason="disk full", path="/data", bytes_free=0, inodes_free=9, bytes_needed=5)
EXIT = ExitRecord(exit_code=0, signal=None, ended_at=180.0, outcome="succeeded", reason="")


def phase(name, **more):
    return StateRecord(v=1, rev=2, phase=name, since=160.0, **more)


def see(*, start=None, stop=None, state=None, pause=None, exit=None, heartbeat=BEAT, lock_held=False, alive=False):  # noqa: A002
    records = Records(launch=None, start=start, stop=stop, state=state, pause=pause, exit=exit, heartbeat=heartbeat)
    return Observation(records=records, lock_held=lock_held, alive=alive, incarnation=HERE, created_at=CREATED, now=NOW)


def restarted(**more):
    return see(start=msgspec.structs.replace(START, incarnation=ELSEWHERE), **more)


FINISHED = Finished(started_at=STARTED, ended_at=180.0, outcome="succeeded", exit_code=0, signal=None, reason="")

ROWS = [
    ("an exit record is final", see(start=START, exit=EXIT), FINISHED),
    ("even while the supervisor still tidies up", see(start=START, exit=EXIT, lock_held=True, alive=True), FINISHED),
    ("even under another incarnation", restarted(exit=EXIT), FINISHED),
    (
        "an exit without a start was a reservation",
        see(exit=EXIT),
        msgspec.structs.replace(FINISHED, started_at=180.0),
    ),
    ("lock held, nothing on record", see(lock_held=True), Starting(since=CREATED)),
    ("a stop before the start changes nothing yet", see(lock_held=True, stop=STOP), Starting(since=CREATED)),
    ("lock free, nothing on record", see(heartbeat=None), Queued(since=CREATED)),
    ("lock held and a fresh heart", see(start=START, lock_held=True, alive=True), Running(since=STARTED, pid=42)),
    ("between the exit and its record", see(start=START, lock_held=True), Running(since=STARTED, pid=42)),
    (
        "an old heart is a stall, never a death",
        see(start=START, lock_held=True, alive=True, heartbeat=155.0),
        Stalled(since=155.0, pid=42, heartbeat_age_s=40.0),
    ),
    (
        "a stall hides a stop that nobody carries out",
        see(start=START, stop=STOP, lock_held=True, alive=True, heartbeat=155.0),
        Stalled(since=155.0, pid=42, heartbeat_age_s=40.0),
    ),
    (
        "a heart that never beat counts from the start",
        see(start=START, lock_held=True, alive=True, heartbeat=None),
        Stalled(since=STARTED, pid=42, heartbeat_age_s=90.0),
    ),
    (
        "a stop that was asked for",
        see(start=START, stop=STOP, state=phase("stopping"), lock_held=True, alive=True),
        Stopping(since=150.0, pid=42, requested_by="ann", reason="tea"),
    ),
    (
        "a stop that the supervisor has not seen yet",
        see(start=START, stop=STOP, state=phase("running"), lock_held=True, alive=True),
        Stopping(since=150.0, pid=42, requested_by="ann", reason="tea"),
    ),
    (
        "waiting for a person",
        see(start=START, state=phase("running"), pause=PAUSE, lock_held=True, alive=True),
        Paused(since=160.0, pid=42, reason="disk full"),
    ),
    (
        "a stop of a job that waits for a person",
        see(start=START, stop=STOP, state=phase("running"), pause=PAUSE, lock_held=True, alive=True),
        Stopping(since=150.0, pid=42, requested_by="ann", reason="tea"),
    ),
    (
        "processes that no signal ends",
        see(start=START, stop=STOP, state=phase("unkillable", pids=[42]), lock_held=True, alive=True),
        Unkillable(since=160.0, pids=[42]),
    ),
    (
        "the same without a supervisor",
        see(start=START, state=phase("unkillable", pids=[42]), alive=True),
        Unkillable(since=160.0, pids=[42]),
    ),
    ("lock free, process alive", see(start=START, alive=True), Orphaned(since=BEAT, pid=42)),
    (
        "lock free, process gone",
        see(start=START),
        Lost(since=BEAT, reason="the job and its supervisor are gone and left no exit record; its log may say more"),
    ),
    ("another incarnation that still writes", restarted(), Foreign(since=STARTED, incarnation=ELSEWHERE)),
    (
        "a pid of another incarnation proves nothing",
        restarted(alive=True, heartbeat=155.0),
        Lost(since=155.0, reason="the host was restarted while the job ran; its exit is unknown"),
    ),
]


@pytest.mark.parametrize(("seen", "state"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(seen, state):
    assert derive_state(seen) == state


observations = st.builds(
    see,
    start=st.sampled_from([None, START, msgspec.structs.replace(START, incarnation=ELSEWHERE)]),
    stop=st.sampled_from([None, STOP]),
    state=st.sampled_from([None, *(phase(name) for name in ("running", "stopping", "unkillable"))]),
    pause=st.sampled_from([None, PAUSE]),
    exit=st.sampled_from([None, EXIT]),
    heartbeat=st.none() | st.floats(0, NOW),
    lock_held=st.booleans(),
    alive=st.booleans(),
)


@given(observations)
def test_nothing_ends_a_job_but_its_exit_record_or_the_loss_of_both_processes(seen):
    state = derive_state(seen)
    assert isinstance(state, Finished) == (seen.records.exit is not None)
    if isinstance(state, Lost):
        assert not seen.lock_held
        assert not (seen.alive and seen.records.start.incarnation == HERE)
    if isinstance(state, Queued):
        assert not seen.lock_held, "a job whose supervisor lives must never be started a second time"


@given(observations)
def test_the_revision_grows_with_every_record(seen):
    before = seen.records
    for name, record in (("start", START), ("stop", STOP), ("exit", EXIT)):
        if getattr(before, name) is None:
            after = msgspec.structs.replace(before, **{name: record})
            assert revision_of(after) > revision_of(before)
