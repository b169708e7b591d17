"""The recorder as a job: one of them, for as long as it is needed, replaced when it dies, and heard when nobody listened."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from remote.errors import UsageError, WorkFailed
from remote.jobs import locks
from remote.jobs.store import JobStore
from remote.link.telemetry import TelemetrySource
from remote.protocol.jobs import Finished, Running
from remote.protocol.specs import RecorderSpec
from remote.recorder.jobs import RECORDER
from remote.recorder.place import live_readings, singleton_lock
from tests.jobs.workshop import RELEASE, Workshop, end_everything_below

SLEEP = "import time; time.sleep(600)"
PATIENCE_S = 60.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


@pytest.fixture
def store(tmp_path):
    """A store with the real way to start a recorder."""
    store = JobStore(tmp_path / "root", RELEASE, sys.executable)
    yield store
    end_everything_below(tmp_path)


def finished(store, job_id):
    def job_when_over():
        job = store.get(job_id)
        return job if isinstance(job.state, Finished) else None

    return until(job_when_over)


def recorders(store):
    return [job for job in store.list() if job.agent == RECORDER]


def test_a_reading_is_there_soon_and_the_next_ones_are_recorded(store):
    source = TelemetrySource(store)
    first = source.read()
    assert first.host.cpu_utilization
    assert first.mounts
    second = source.read()
    assert second.sampled_at > first.sampled_at
    found = until(lambda: [one for one in source.history(0.0, None, 1.0).samples if one == second])
    assert found == [second]
    assert len(recorders(store)) == 1


def test_two_links_share_one_recorder(store):
    sources = [TelemetrySource(store) for _ in range(3)]
    assert all(source.read() for source in sources)
    assert len([job for job in recorders(store) if not isinstance(job.state, Finished)]) == 1


def test_a_second_recorder_ends_at_once_and_well(store):
    TelemetrySource(store).read()
    store.start("recorder-second", RecorderSpec(), actor="ann", op_id="second")
    job = finished(store, "recorder-second")
    assert job.state.outcome == "succeeded"
    assert job.result.summary["samples"] == 0


def test_an_idle_recorder_ends_and_the_next_question_starts_another(store):
    store.start("recorder-first", RecorderSpec(idle_exit_s=0.5), actor="ann", op_id="first")
    ended = finished(store, "recorder-first")
    assert ended.state.outcome == "succeeded"
    assert ended.result.summary["samples"] > 0
    assert TelemetrySource(store).read().sampled_at > ended.state.ended_at


def test_a_job_at_work_keeps_it_and_is_recorded_while_nobody_asks(tmp_path):
    shop = Workshop(tmp_path / "root")
    try:
        shop.start("sleeper", SLEEP)
        store = JobStore(shop.root, RELEASE, sys.executable)
        store.start("recorder-first", RecorderSpec(idle_exit_s=0.0), actor="ann", op_id="first")
        source = TelemetrySource(store)
        until(lambda: len(source.history(0.0, None, 1.0).samples) > 2)
        assert isinstance(store.get("recorder-first").state, Running)
        last = source.history(0.0, None, 1.0).samples[-1]
        assert [job.job_id for job in last.jobs] == ["sleeper"]
        shop.stop("sleeper")
        finished(store, "recorder-first")
    finally:
        end_everything_below(tmp_path)


def test_a_killed_recorder_is_replaced_and_what_it_recorded_is_there(store):
    source = TelemetrySource(store)
    before = source.read()
    until(lambda: source.history(0.0, None, 1.0).samples)
    (job,) = recorders(store)
    os.kill(job.state.pid, signal.SIGKILL)
    finished(store, job.job_id)
    # One that fails is not started again at once; until then the last reading is told as what it is: old.
    with pytest.raises(WorkFailed, match="recorder failed"):
        source.read()
    assert source.newer() is None or source.newer() is None
    store.start("recorder-next", RecorderSpec(), actor="ann", op_id="next")
    assert TelemetrySource(store).read().sampled_at > before.sampled_at
    times = [one.sampled_at for one in source.history(0.0, None, 1.0).samples]
    assert times[0] <= before.sampled_at
    assert times == sorted(times)


def test_a_recorder_that_worked_is_replaced_at_the_next_look(store, monkeypatch):
    monkeypatch.setattr("remote.link.telemetry._AT_ONCE_S", 0.0)
    monkeypatch.setattr("remote.link.telemetry._LOOK_EVERY_S", 0.1)
    source, other = TelemetrySource(store), TelemetrySource(store)
    before = source.read()
    (job,) = recorders(store)
    os.kill(job.state.pid, signal.SIGKILL)
    finished(store, job.job_id)
    for each in (source, other):
        assert until(lambda each=each: (found := each.newer()) and found.sampled_at > before.sampled_at and found)
    assert len([job for job in recorders(store) if not isinstance(job.state, Finished)]) == 1


def test_a_silent_recorder_is_replaced(store, monkeypatch):
    monkeypatch.setattr("remote.link.telemetry._SILENT_S", 1.0)
    monkeypatch.setattr("remote.link.telemetry._LOOK_EVERY_S", 0.1)
    source = TelemetrySource(store)
    source.read()
    (job,) = recorders(store)
    os.kill(job.state.pid, signal.SIGSTOP)
    after = time.time()
    sample = until(lambda: (found := source.newer()) and found.sampled_at > after + 1.0 and found)
    assert sample.sampled_at > after
    until(lambda: isinstance(store.get(job.job_id).state, Finished))


def test_a_recorder_of_another_release_makes_place_for_this_ones(store, tmp_path):
    other = tmp_path / "other-release"
    other.symlink_to(RELEASE)
    TelemetrySource(JobStore(store.root, other, sys.executable)).read()
    (old,) = recorders(store)
    TelemetrySource(store).want()
    assert finished(store, old.job_id).state.outcome == "stopped"
    source = TelemetrySource(store)
    assert source.read()
    source.read()
    assert len([job for job in recorders(store) if not isinstance(job.state, Finished)]) == 1


def test_old_recorders_leave_no_directories_behind(store, monkeypatch):
    monkeypatch.setattr("remote.link.telemetry._LOOK_EVERY_S", 0.0)
    for number in range(5):
        store.start(f"recorder-{number}", RecorderSpec(idle_exit_s=0.0), actor="ann", op_id=f"op-{number}")
        finished(store, f"recorder-{number}")
    TelemetrySource(store).read()
    assert len(recorders(store)) == 3
    assert not [path for path in (store.root / "jobs").iterdir() if path.name.startswith(".")]


def test_history_comes_in_pages_that_fit_into_a_line(store, monkeypatch):
    source = TelemetrySource(store)
    until(lambda: len(source.history(0.0, None, 1.0).samples) > 3 or not source.read())
    whole = source.history(0.0, time.time(), 1.0).samples
    monkeypatch.setattr("remote.link.telemetry._PAGE_BYTES", 1)
    since, pages = 0.0, []
    while since is not None:
        page = source.history(since, whole[-1].sampled_at + 0.001, 1.0)
        pages += page.samples
        since = page.next_since
        assert len(page.samples) <= 1
    assert pages == whole
    assert page.oldest_at <= whole[0].sampled_at


@pytest.mark.parametrize(
    ("since", "until_", "step"), [(float("nan"), None, 1.0), (0.0, float("inf"), 1.0), (0, 1, 0.0)]
)
def test_a_span_that_is_none_is_refused(store, since, until_, step):
    with pytest.raises(UsageError, match="no span"):
        TelemetrySource(store).history(since, until_, step)


def test_a_host_without_devices_says_why_nothing_is_connected(store):
    source = TelemetrySource(store)
    if source.read().gpus:
        pytest.skip("this host has devices")
    topology = source.topology()
    assert (topology.driver_version, topology.paths) == ("", [])
    assert topology.events_from == f"nowhere: {source.read().gpu_detail}"


def test_the_recorder_holds_its_lock_and_gives_it_back(store):
    TelemetrySource(store).read()
    (job,) = recorders(store)
    assert locks.is_held(singleton_lock(store.root))
    store.stop(job.job_id, actor="ann", op_id="stop", reason="enough")
    finished(store, job.job_id)
    assert not locks.is_held(singleton_lock(store.root))
    assert Path(live_readings(store.root)._wanted).exists()
