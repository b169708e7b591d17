"""The state after a whole recorded run, and after events that come twice, late or out of nowhere."""

from pathlib import Path

import msgspec
import pytest

from console.recording.format import LinkUp
from console.recording.reader import read_recording
from console.state.alerts import alerts
from console.state.forecast import runway_s
from console.state.host import HostState
from console.state.link import Closed, Connecting, Lost, Up
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Heartbeat, JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.jobs import Finished, Job, Paused, Running, Stalled
from remote.protocol.progress import STAGES, ProgressRecord, StageChanged, StageDone, StageFailed, StageRunning
from remote.protocol.telemetry import Diagnosis, GpuSample, MountSample, TelemetryHistory

RECORDING = Path(__file__).parents[1] / "recordings/embedded_run.jsonl"


@pytest.fixture(scope="module")
def events() -> list:
    found = []
    for record in read_recording(RECORDING):
        match record.what:
            case LinkUp(latency_s=latency, welcome=welcome):
                found.append((record.at, Up(since=record.at, latency_s=latency, welcome=welcome)))
            case Telemetry() | JobChanged() | ProgressMade() | LogData():
                found.append((record.at, record.what))
            case _:
                pass
    return found


def played(events, until: float = 1e9) -> HostState:
    state = HostState("embedded")
    for at, event in events:
        if at <= until:
            state.apply(event, at)
    return state


def job(job_id: str, state, *, created_at: float = 0.0, agent: str = "training", run_id: str | None = None) -> Job:
    return Job(
        job_id=job_id,
        agent=agent,
        state=state,
        revision=1,
        created_at=created_at,
        created_by="ann",
        command=["x"],
        run_id=run_id,
    )


def test_a_whole_run_ends_with_every_stage_done_and_every_job_over(events) -> None:
    state = played(events)
    run = state.newest_run()
    stages = state.stages_of(run.job_id)
    assert [stage for stage, _ in stages] == list(STAGES)
    assert all(isinstance(stage_state, StageDone) for _, stage_state in stages)
    assert all(isinstance(each.state, Finished) for each in state.jobs.values())
    assert run.result.summary["decision"] == "promote"
    curves = state.training_curves()
    assert curves.last.step == curves.last.total_steps == 400
    assert curves.loss.last < curves.loss.tail(len(curves.loss))[0]


def test_in_the_middle_one_stage_is_running_with_an_estimate(events) -> None:
    state = played(events, until=180.0)
    run = state.newest_run()
    running = [stage for stage, each in state.stages_of(run.job_id) if isinstance(each, StageRunning)]
    assert running == ["training"]
    training = next(each for each in state.children(run.job_id) if each.agent == "training")
    assert state.time_left_s(training) == pytest.approx(74, abs=2)
    assert state.time_left_s(run) is None
    assert set(state.wanted_progress()) == {run.job_id, *(each.job_id for each in state.children(run.job_id))}


def test_a_training_by_itself_is_watched_and_drawn_once_it_tells_of_a_step(events) -> None:
    state = played(events)
    by_itself = job("training-by-itself", Running(since=0.0, pid=1), created_at=2e9)
    state.apply(JobChanged(job=by_itself), 0.0)
    assert by_itself.job_id in state.wanted_progress()
    assert state.training_curves() is None, "not those of another training"


def test_extractions_by_themselves_are_watched_while_they_work_and_the_last_until_a_run_comes() -> None:
    state = HostState("lab")
    over = Finished(started_at=1.0, ended_at=2.0, outcome="succeeded", exit_code=0, signal=None, reason="")
    jobs = [
        job("first", over, created_at=1, agent="extraction"),
        job("last", over, created_at=2, agent="extraction"),
        job("part-1", Running(since=0, pid=1), created_at=3, agent="extraction"),
        job("part-2", Running(since=0, pid=1), created_at=4, agent="extraction"),
    ]
    state.set_jobs(jobs)
    assert [each.job_id for each in state.extractions_to_show()] == ["last", "part-1", "part-2"]
    assert set(state.wanted_progress()) == {"last", "part-1", "part-2"}
    run = job("run", Running(since=0, pid=1), created_at=5, agent="run")
    state.set_jobs([*jobs, run, job("run-x", over, created_at=6, agent="extraction", run_id="run")])
    assert [each.job_id for each in state.extractions_to_show()] == ["run-x", "part-1", "part-2"]


def test_progress_that_comes_twice_counts_once(events) -> None:
    once, twice = played(events), played(sorted([*events, *events], key=lambda pair: pair[0]))
    assert once.progress_seq == twice.progress_seq
    once_curves, twice_curves = once.training_curves(), twice.training_curves()
    assert len(once_curves.loss) == len(twice_curves.loss)
    assert once.stages == twice.stages


def test_logs_are_taken_only_where_somebody_looks(events) -> None:
    assert played(events).logs == {}


def test_the_newest_run_comes_first_with_its_jobs_below_it() -> None:
    state = HostState("lab")
    state.set_jobs(
        [
            job("old", Running(since=0, pid=1), created_at=1, agent="run"),
            job("old-server", Running(since=0, pid=1), created_at=2, agent="server", run_id="old"),
            job("new", Running(since=0, pid=1), created_at=3, agent="run"),
            job("new-server", Running(since=0, pid=1), created_at=4, agent="server", run_id="new"),
            job("new-training", Running(since=0, pid=1), created_at=5, run_id="new"),
            job("orphan", Running(since=0, pid=1), created_at=2.5, run_id="gone"),
        ]
    )
    order = [each.job_id for each in state.ordered_jobs()]
    assert order == ["new", "new-training", "new-server", "orphan", "old", "old-server"]


def test_the_hosts_clock_is_its_own() -> None:
    state = HostState("lab")
    assert state.host_now(5.0) is None
    state.apply(Heartbeat(at=1000.0), 10.0)
    assert state.host_now(12.5) == 1002.5


def test_a_welcome_outlives_the_link(events) -> None:
    state = played(events, until=1.0)
    state.apply(Lost(since=1.0, reason="gone", retry_at=4.0), 1.0)
    state.apply(Connecting(attempt=1, since=1.0), 4.0)
    assert state.welcome is not None
    assert isinstance(state.link, Connecting)


def test_a_host_that_was_never_reached_is_not_said_to_have_jobs() -> None:
    state = HostState("lab")
    state.apply(Lost(since=100.0, reason="refused", retry_at=108.0), 100.0)
    assert alerts(state, 103.0) == [("not reached for 3 s, next try in 5 s (refused)", True)]


def test_a_lost_link_says_when_it_tries_again_and_that_jobs_go_on(events) -> None:
    state = played(events, until=1.0)
    state.apply(Lost(since=100.0, reason="\x1b[31mreset", retry_at=108.0), 100.0)
    assert alerts(state, 103.0) == [("link lost 3 s ago, next try in 5 s, jobs on the host go on (reset)", True)]
    state.apply(Closed(error=ErrorInfo(code=ErrorCode.CONNECTION, message="the host key has changed")), 110.0)
    assert alerts(state, 110.0) == [("link closed: the host key has changed", True)]


def test_what_wants_a_person_is_an_alert() -> None:
    state = HostState("lab")
    state.set_jobs(
        [
            job("run-a", Paused(since=0, pid=1, reason="waits: the disk is full"), created_at=1, agent="run"),
            job("stuck", Stalled(since=0, pid=1, heartbeat_age_s=70), created_at=2, run_id="run-a"),
            job("waits", Paused(since=0, pid=1, reason="the disk is full"), created_at=3, run_id="run-a"),
        ]
    )
    found = " | ".join(map(str, alerts(state, 0.0)))
    assert "stuck: no heartbeat for 1:10" in found
    assert "waits is paused: the disk is full" in found
    assert "run-a is paused" not in found, "its job says the same"


def test_runway_is_free_space_over_fill_rate_and_unknown_when_it_does_not_fill() -> None:
    def mount(rate: float | None) -> MountSample:
        return MountSample(
            path="/d", used_bytes=0, total_bytes=10**9, free_bytes=10**9, free_inodes=None, fill_rate_bytes_per_s=rate
        )

    assert runway_s(mount(1e6)) == 1000.0
    assert runway_s(mount(None)) is None
    assert runway_s(mount(0.0)) is None
    assert runway_s(mount(-1e6)) is None


def test_a_stage_that_its_run_left_at_work_is_at_work_no_more() -> None:
    state = HostState("h")
    run = Job(
        job_id="run-x",
        agent="run",
        state=Running(since=1.0, pid=1),
        revision=1,
        created_at=1.0,
        created_by="user",
        command=[],
    )
    ended = Finished(started_at=1.0, ended_at=9.0, outcome="failed", exit_code=None, signal=9, reason="killed")
    running = StageChanged(stage="server", state=StageRunning(since=2.0))
    state.set_jobs([run])
    state.apply(ProgressMade(job_id="run-x", record=ProgressRecord(seq=1, at=2.0, event=running)), 0.0)
    assert dict(state.stages_of("run-x"))["server"] == StageRunning(since=2.0)
    state.apply(JobChanged(job=msgspec.structs.replace(run, state=ended)), 0.0)
    left = dict(state.stages_of("run-x"))["server"]
    assert isinstance(left, StageFailed)
    assert "killed" in left.reason


def test_a_silent_host_is_known_by_its_last_heartbeat() -> None:
    state = HostState("lab")
    assert state.silence_s(5.0) is None
    welcome = next(r.what.welcome for r in read_recording(RECORDING) if isinstance(r.what, LinkUp))
    state.apply(Up(since=10.0, latency_s=0.01, welcome=welcome), 10.0)
    assert state.silence_s(12.0) is None, "no heartbeat yet on this link"
    state.apply(Heartbeat(at=1000.0), 12.0)
    assert state.silence_s(19.0) == 7.0
    state.apply(Lost(since=20.0, reason="gone", retry_at=21.0), 20.0)
    assert state.silence_s(25.0) is None
    state.apply(Up(since=30.0, latency_s=0.01, welcome=welcome), 30.0)
    assert state.silence_s(31.0) is None, "an older link's heartbeat says nothing of this one"


def gpu(*, gpu_index: int, error: str) -> GpuSample:
    unknown = {
        name: None
        for name in GpuSample.__struct_fields__
        if name not in ("gpu_index", "error", "name", "uuid", "throttle_reasons")
    }
    return GpuSample(
        gpu_index=gpu_index, name="x", uuid=f"GPU-{gpu_index}", throttle_reasons=[], error=error, **unknown
    )


def diagnosed(code: str, subject: str, severity: str, summary: str) -> Diagnosis:
    return Diagnosis(
        code=code, severity=severity, subject=subject, since=0.0, summary=summary, evidence="e", advice="a"
    )


def test_of_devices_and_disks_the_recorders_diagnoses_alone_are_alerts(events) -> None:
    """A disk that fills for some seconds and a call that failed once are none before the recorder has seen them last."""
    sample = next(event.sample for _, event in events if isinstance(event, Telemetry))
    filling = MountSample(
        path="/data",
        used_bytes=0,
        total_bytes=10**12,
        free_bytes=6 * 10**11,
        free_inodes=None,
        fill_rate_bytes_per_s=1e9,
    )
    sample = msgspec.structs.replace(sample, mounts=[filling], gpus=[gpu(gpu_index=4, error="GPU is lost")])
    state = HostState("lab")
    state.apply(Telemetry(sample=sample), 0.0)
    assert alerts(state, 0.0) == []
    found = [
        diagnosed("throttled", "GPU 1", "warning", "held back"),
        diagnosed("hardware", "GPU 4", "error", "GPU 4 is lost"),
        diagnosed("runway_short", "/data", "error", "/data is full in 10 min, the run still needs 2 h"),
    ]
    state.apply(Telemetry(sample=msgspec.structs.replace(sample, diagnoses=found)), 0.0)
    assert [str(alert) for alert in alerts(state, 0.0)] == [
        "✗ GPU 4 is lost",
        "✗ /data is full in 10 min, the run still needs 2 h",
        "! GPU 1: held back",
    ]


def test_a_reading_that_comes_late_is_passed_over_and_a_clock_that_was_set_back_is_not(events) -> None:
    sample = next(event.sample for _, event in events if isinstance(event, Telemetry))
    state = HostState("lab")
    for at in (100.0, 105.0, 103.0):
        state.apply(Telemetry(sample=msgspec.structs.replace(sample, sampled_at=sample.sampled_at + at)), at)
    assert state.sample.sampled_at == sample.sampled_at + 105.0
    state.apply(Telemetry(sample=msgspec.structs.replace(sample, sampled_at=sample.sampled_at - 3600)), 106.0)
    assert state.sample.sampled_at == sample.sampled_at - 3600


def test_history_and_live_readings_count_once_whatever_their_order(events) -> None:
    first = next(event.sample for _, event in events if isinstance(event, Telemetry))
    samples = [msgspec.structs.replace(first, sampled_at=1000.0 + second) for second in range(50)]
    state = HostState("lab")
    for sample in samples[30:]:
        state.apply(Telemetry(sample=sample), 0.0)
    state.apply(TelemetryHistory(samples=samples[:40]), 0.0)
    assert state.readings.cpus[0].columns() == [first.host.cpu_utilization[0]] * 50
    assert state.sample is samples[-1]


def test_a_recorder_at_work_is_no_job_for_people() -> None:
    state = HostState("lab")
    well = job("recorder-2", Running(since=0, pid=1), created_at=2, agent="recorder")
    failed = Finished(started_at=0, ended_at=1, outcome="failed", exit_code=1, signal=None, reason="x")
    state.set_jobs([well, job("recorder-1", failed, created_at=1, agent="recorder"), job("a", Running(since=0, pid=2))])
    assert [each.job_id for each in state.shown_jobs()] == ["a"]
    assert {each.job_id for each in state.ordered_jobs()} == {"a", "recorder-1", "recorder-2"}
    state.apply(JobChanged(job=msgspec.structs.replace(well, state=Stalled(since=0, pid=1, heartbeat_age_s=70))), 0.0)
    assert [each.job_id for each in state.shown_jobs()] == ["recorder-2", "a"]
    assert any("recorder-2" in alert.text for alert in alerts(state, 0.0))
