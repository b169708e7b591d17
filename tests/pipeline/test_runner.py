"""The runner with real small jobs: the order of things, what is not done twice, and that nothing is left behind."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from remote.agents.harness import JobContext, Stopped
from remote.errors import Conflict, Precondition, RoostError, WorkFailed
from remote.jobs.launch import LaunchPlan
from remote.jobs.launch import plan as plan_launch
from remote.jobs.locks import lock_directory
from remote.jobs.records import PauseRecord
from remote.jobs.store import JobStore
from remote.pipeline.config import load_run
from remote.pipeline.runner import conduct
from remote.protocol.codec import decode_progress_record
from remote.protocol.jobs import Finished, Job, JobResult, Paused, is_over
from remote.protocol.progress import (
    STAGES,
    Note,
    ProgressRecord,
    StageChanged,
    StageFailed,
    StagePending,
    StageRunning,
    StageState,
)
from remote.protocol.specs import RunSpec, Spec

RELEASE = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).with_name("small_workers.py")


def plan_small(spec: Spec) -> LaunchPlan:
    agent = plan_launch(spec, sys.executable).agent
    return LaunchPlan(agent=agent, argv=[sys.executable, str(WORKERS)], stop_grace_s=10.0)


class Bench:
    """A host whose agents do trivial work, and one run after another on it."""

    def __init__(self, root: Path, document: str) -> None:
        self.root = root
        self.document = document
        self.store = JobStore(root, RELEASE, sys.executable, plan=plan_small)
        self.runs = 0

    def open(self) -> JobContext:
        self.runs += 1
        directory = self.root / f"contexts/run-{self.runs}"
        directory.mkdir(parents=True)
        return JobContext(directory, self.root)

    def conduct(self, job: JobContext, **overrides: str) -> JobResult:
        keys = {key.replace("__", "."): value for key, value in overrides.items()}
        return conduct(load_run(self.document, {"engine.python": "engine-python"} | keys), job, self.store)

    def conduct_beside(self, job: JobContext) -> tuple[threading.Thread, list[BaseException]]:
        """Conduct in a thread; the list holds the error that ended it."""
        caught: list[BaseException] = []

        def conduct_it() -> None:
            try:
                self.conduct(job)
            except (Stopped, RoostError) as error:
                caught.append(error)

        thread = threading.Thread(target=conduct_it)
        thread.start()
        return thread, caught

    def misbehave(self, **behaviour: str) -> None:
        told = {name.replace("_", "-"): what for name, what in behaviour.items()}
        (self.root / "behaviour.json").write_text(json.dumps(told))

    def jobs(self, run_id: str) -> dict[str, Job]:
        return {job.job_id.removeprefix(f"{run_id}-"): job for job in self.store.list() if job.run_id == run_id}

    def running(self) -> list[str]:
        return [job.job_id for job in self.store.list() if not is_over(job.state)]


def told(job: JobContext) -> list[ProgressRecord]:
    lines = (job.directory / "progress.jsonl").read_bytes().splitlines(keepends=True)
    return [decode_progress_record(line) for line in lines]


def last_states(job: JobContext) -> dict[str, StageState]:
    events = [record.event for record in told(job)]
    return {
        event.stage: event.state
        for event in events
        if isinstance(event, StageChanged) and not isinstance(event.state, StagePending)
    }


def kinds(job: JobContext) -> dict[str, str]:
    return {stage: type(state).__name__.removeprefix("Stage").lower() for stage, state in last_states(job).items()}


def skipped(job: JobContext) -> set[str]:
    return {stage for stage, kind in kinds(job).items() if kind == "skipped"}


def until(condition, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@contextmanager
def opened(root: Path, document: str) -> Iterator[Bench]:
    made = Bench(root, document)
    yield made
    for job_id in made.running():
        made.store.stop(job_id, actor="test", op_id=f"end-{job_id}"[:64], reason="the test is over")
    until(lambda: not made.running())
    shutil.rmtree(lock_directory(root))


@pytest.fixture
def bench(root: Path, document: str) -> Iterator[Bench]:
    with opened(root, document) as made:
        yield made


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, root_maker: Callable[[Path], Path], document: str
) -> Iterator[tuple[Bench, JobContext, JobResult]]:
    """A run that went through, with what it told and its result; for looking at and copying, not for changing."""
    with opened(root_maker(tmp_path_factory.mktemp("finished") / "root"), document) as made:
        job = made.open()
        yield made, job, made.conduct(job)


@pytest.fixture
def done_before(bench: Bench, finished: tuple[Bench, JobContext, JobResult]) -> Bench:
    """A bench on whose root the run is done already."""
    shutil.copytree(finished[0].root / "runs", bench.root / "runs")
    return bench


def test_a_run_tells_first_what_its_stages_will_write(finished):
    _, job, _ = finished
    pending = {
        record.event.stage: record.event.state.bytes_to_write
        for record in told(job)
        if isinstance(record.event, StageChanged) and isinstance(record.event.state, StagePending)
    }
    assert list(pending) == list(STAGES[1:])
    assert pending["extraction"] > 0
    assert pending["training"] > 0


def test_a_run_goes_through_all_stages_and_leaves_no_job_behind(finished: tuple[Bench, JobContext, JobResult]):
    bench, job, result = finished
    assert kinds(job) == dict.fromkeys(STAGES, "done")
    assert bench.running() == []
    assert result.summary["decision"] == "promote"
    assert result.summary["speedup"] == pytest.approx(2.0)
    assert result.summary["coverage"] == pytest.approx(0.9)
    kinds_of_output = [output.kind for output in result.outputs]
    assert kinds_of_output == ["store", "mapping", "drafter", "evaluation", "evaluation", "verdict"]


def test_jobs_run_in_order_and_never_beside_a_server_that_has_done_its_part(
    finished: tuple[Bench, JobContext, JobResult],
):
    jobs = finished[0].jobs("run-1")
    assert sorted(jobs, key=lambda name: jobs[name].created_at) == [
        "server",
        "extraction",
        "vocabulary",
        "training",
        "serving",
        "evaluation-drafter",
        "baseline-server",
        "evaluation-baseline",
    ]
    for server, after in [("server", "training"), ("serving", "baseline-server")]:
        state = jobs[server].state
        assert isinstance(state, Finished)
        assert state.ended_at <= jobs[after].created_at


def test_the_second_time_nothing_is_done_twice(done_before: Bench, finished: tuple[Bench, JobContext, JobResult]):
    job = done_before.open()
    result = done_before.conduct(job)
    assert kinds(job) == dict.fromkeys(STAGES, "skipped") | {"preflight": "done"}
    assert done_before.jobs("run-1") == {}
    hashes = [output.manifest_sha256 for output in result.outputs]
    assert hashes == [output.manifest_sha256 for output in finished[2].outputs]
    assert result.summary["speedup"] == finished[2].summary["speedup"]


def test_another_setting_keeps_what_it_does_not_touch_and_loses_nothing(done_before: Bench):
    job = done_before.open()
    done_before.conduct(job, training__steps="5")
    assert skipped(job) == {"server", "extraction", "vocabulary"}
    names = sorted(path.name.split("-2")[0] for path in (done_before.root / "runs/trial").glob("*superseded*"))
    assert names == [
        "drafter.superseded",
        "evaluation-baseline.superseded",
        "evaluation-drafter.superseded",
        "verdict.superseded",
    ]
    notes = [record.event.text for record in told(job) if isinstance(record.event, Note)]
    assert any("drafter is now drafter.superseded-" in note and "other inputs" in note for note in notes)


def test_a_baseline_that_is_missing_is_measured_alone(done_before: Bench):
    shutil.rmtree(done_before.root / "runs/trial/evaluation-baseline")
    job = done_before.open()
    done_before.conduct(job)
    assert sorted(done_before.jobs("run-1")) == ["baseline-server", "evaluation-baseline"]
    assert skipped(job) == {"server", "extraction", "vocabulary", "training", "serving"}


def test_when_the_drafter_is_measured_again_so_is_the_baseline(done_before: Bench):
    shutil.rmtree(done_before.root / "runs/trial/evaluation-drafter")
    job = done_before.open()
    done_before.conduct(job)
    assert skipped(job) == {"server", "extraction", "vocabulary", "training"}
    assert len(list((done_before.root / "runs/trial").glob("evaluation-baseline.superseded-*"))) == 1


def test_arms_that_were_not_measured_alike_are_measured_again_and_nothing_else(done_before: Bench):
    shutil.rmtree(done_before.root / "runs/trial/evaluation-drafter")
    done_before.misbehave(evaluation_baseline="disturbed")
    assert done_before.conduct(done_before.open()).summary["decision"] == "inconclusive"
    done_before.misbehave()
    job = done_before.open()
    assert done_before.conduct(job).summary["decision"] == "promote"
    assert skipped(job) == {"server", "extraction", "vocabulary", "training"}
    notes = [record.event.text for record in told(job) if isinstance(record.event, Note)]
    assert any("other processes used 0.1 of 2 cores beside it and 1.5 beside the baseline" in note for note in notes)


@pytest.mark.parametrize(
    ("who", "stage", "said"),
    [
        ("extraction", "extraction", "run-1-extraction failed: the work was told to fail"),
        ("evaluation_baseline", "evaluation", "run-1-evaluation-baseline failed: the work was told to fail"),
    ],
)
def test_a_failure_names_its_job_and_stops_the_rest(bench: Bench, who, stage, said):
    bench.misbehave(**{who: "fail"})
    job = bench.open()
    with pytest.raises(WorkFailed, match=said) as caught:
        bench.conduct(job)
    assert bench.running() == []
    state = last_states(job)[stage]
    assert isinstance(state, StageFailed)
    assert state.reason == said
    assert caught.value.info.next_command == f"roost logs {said.split()[0]}"
    assert list(kinds(job))[-1] == stage


def test_what_a_job_refuses_the_run_refuses_with_its_hint(bench: Bench):
    bench.misbehave(vocabulary="refuse")
    job = bench.open()
    with pytest.raises(Precondition, match="run-1-vocabulary failed: it covers too little") as caught:
        bench.conduct(job)
    assert caught.value.info.hint is not None
    assert caught.value.info.hint.startswith("raise it; what is finished")
    assert list(kinds(job))[-1] == "vocabulary"


def test_a_failed_run_goes_on_where_it_stopped(bench: Bench):
    bench.misbehave(training="fail")
    with pytest.raises(WorkFailed):
        bench.conduct(bench.open())
    bench.misbehave()
    job = bench.open()
    bench.conduct(job)
    assert skipped(job) == {"server", "extraction", "vocabulary"}


def test_a_server_that_dies_is_the_cause_and_not_its_client(bench: Bench):
    bench.misbehave(server="die", extraction="hang")
    job = bench.open()
    with pytest.raises(
        WorkFailed, match="run-1-server failed: the server ended while it was needed: the scheduler crashed"
    ):
        bench.conduct(job)
    assert bench.running() == []
    assert kinds(job)["extraction"] == "failed"


def test_a_server_is_the_cause_also_where_its_client_noticed_first(bench: Bench):
    bench.misbehave(server="die", extraction="fail")
    with pytest.raises(
        WorkFailed,
        match="run-1-server failed: the server ended while it was needed: the scheduler crashed; run-1-extraction failed",
    ):
        bench.conduct(bench.open())


def test_a_server_that_ends_before_it_is_ready_is_a_failure(bench: Bench):
    bench.misbehave(server="never ready")
    with pytest.raises(WorkFailed, match="run-1-server failed: the server ended before it was ready"):
        bench.conduct(bench.open())


def test_a_stop_ends_every_job_and_says_so(bench: Bench):
    bench.misbehave(extraction="hang")
    job = bench.open()
    thread, caught = bench.conduct_beside(job)
    until(lambda: isinstance(last_states(job).get("extraction"), StageRunning))
    job.stop_requested.set()
    thread.join(60)
    assert isinstance(caught[0], Stopped)
    assert bench.running() == []
    assert kinds(job)["extraction"] == "failed"
    assert {name: _outcome(found) for name, found in bench.jobs("run-1").items()} == {
        "server": "stopped",
        "extraction": "stopped",
    }


def test_a_run_whose_job_is_paused_is_paused_with_its_reason_and_goes_on_with_it(bench: Bench):
    bench.misbehave(extraction="find no room")
    job = bench.open()
    thread, caught = bench.conduct_beside(job)
    until((job.directory / "pause.json").exists)
    pause = msgspec.json.decode((job.directory / "pause.json").read_bytes(), type=PauseRecord)
    assert pause.reason.startswith("run-1-extraction: no room to write")
    stage = bench.store.get("run-1-extraction").state
    assert isinstance(stage, Paused)
    assert pause.since == stage.since
    (bench.root / "room").touch()
    thread.join(60)
    assert caught == []
    assert not (job.directory / "pause.json").exists()
    assert kinds(job)["verdict"] == "done"


def _outcome(job: Job) -> str:
    assert isinstance(job.state, Finished)
    return job.state.outcome


def test_a_job_that_a_person_stops_fails_the_run(bench: Bench):
    bench.misbehave(extraction="hang")
    job = bench.open()
    thread, caught = bench.conduct_beside(job)
    until(lambda: isinstance(last_states(job).get("extraction"), StageRunning))
    until(lambda: "run-1-extraction" in bench.running())
    bench.store.stop("run-1-extraction", actor="ann", op_id="stop-1", reason="enough")
    thread.join(60)
    assert "ann" in str(caught[0])
    assert bench.running() == []


def test_two_runs_never_share_a_directory(bench: Bench):
    bench.misbehave(extraction="hang")
    first = bench.open()
    thread, caught = bench.conduct_beside(first)
    until(lambda: isinstance(last_states(first).get("extraction"), StageRunning))
    with pytest.raises(Conflict, match="another run is at work in"):
        bench.conduct(bench.open())
    first.stop_requested.set()
    thread.join(60)
    assert isinstance(caught[0], Stopped)


def test_a_run_that_cannot_begin_touches_nothing(bench: Bench):
    job = bench.open()
    with pytest.raises(Precondition, match=r"run trial cannot begin: there is no model at .*models/none"):
        bench.conduct(job, target__model="models/none")
    assert kinds(job) == {"preflight": "failed"}
    assert not (bench.root / "runs").exists()


def test_a_run_elsewhere_is_known_below_root(bench: Bench, tmp_path: Path):
    bench.misbehave(server="fail")
    with pytest.raises(WorkFailed):
        bench.conduct(bench.open(), directory=str(tmp_path / "volume/elsewhere"))
    assert (bench.root / "runs/elsewhere").resolve() == tmp_path / "volume/elsewhere"


def test_the_runner_is_a_job_itself(root: Path, document: str):
    store = JobStore(root, RELEASE, sys.executable)
    spec = RunSpec(run=load_run(document, {"target.model": "models/none"}))
    store.start("run-real", spec, actor="ann", op_id="start-real")
    until(lambda: is_over(store.get("run-real").state))
    state = store.get("run-real").state
    assert isinstance(state, Finished)
    assert (state.outcome, state.exit_code) == ("failed", 5)
    assert "there is no model at" in state.reason
    shutil.rmtree(lock_directory(root))
