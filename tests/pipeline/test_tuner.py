"""The tuning with real small jobs: who wins, what fails, what is not measured twice, and that nothing is left behind."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from remote.agents.harness import JobContext, Stopped
from remote.artifacts.manifest import verify
from remote.errors import Conflict, NotFound, Precondition, RoostError, WorkFailed
from remote.jobs.store import JobStore
from remote.pipeline.config import load_run
from remote.pipeline.tuner import conduct
from remote.pipeline.tuning import read_tuning
from remote.protocol.jobs import is_over
from remote.protocol.progress import TrialAdvanced
from remote.protocol.specs import TuningSpec
from remote.protocol.tuning import TuningReport
from tests.pipeline.test_runner import RELEASE, plan_small, told, until

SWEEP = """
[tuning]
prompts = 2
repeats = 1
[tuning.sweep]
"engine.flags.max-total-tokens" = [60, 110, 120, 131]
"""


class Bench:
    """A host whose servers answer as fast as `max-total-tokens` says; 100 tokens a second without it."""

    def __init__(self, root: Path, document: str) -> None:
        self.root = root
        self.document = document
        self.store = JobStore(root, RELEASE, sys.executable, plan=plan_small)
        self.tunings = 0

    def open(self) -> JobContext:
        self.tunings += 1
        directory = self.root / f"contexts/tuning-{self.tunings}"
        directory.mkdir(parents=True)
        return JobContext(directory, self.root)

    def tune(self, job: JobContext, sweep: str = SWEEP) -> TuningReport:
        run = load_run(self.document + sweep, {"engine.python": "engine-python"})
        result = conduct(TuningSpec(run=run), job, self.store)
        (reference,) = result.outputs
        directory = Path(reference.path)
        verify(directory)
        return msgspec.json.decode((directory / "report.json").read_bytes(), type=TuningReport)

    def misbehave(self, **behaviour: str) -> None:
        (self.root / "behaviour.json").write_text(
            json.dumps({key.replace("_", "-"): what for key, what in behaviour.items()})
        )

    def started(self) -> list[str]:
        return sorted(job.job_id.partition("-t")[2] for job in self.store.list())

    def tune_beside(self, job: JobContext) -> tuple[threading.Thread, list[BaseException]]:
        """Tune in a thread; the list holds the error that ended it."""
        caught: list[BaseException] = []

        def tune() -> None:
            try:
                self.tune(job)
            except (Stopped, RoostError) as error:
                caught.append(error)

        thread = threading.Thread(target=tune)
        thread.start()
        return thread, caught

    def running(self) -> list[str]:
        return [job.job_id for job in self.store.list() if not is_over(job.state)]


def outcomes(report: TuningReport) -> dict[int, str]:
    return {trial.number: trial.outcome for trial in report.trials}


def trials_told(job: JobContext) -> list[TrialAdvanced]:
    return [record.event for record in told(job) if isinstance(record.event, TrialAdvanced)]


@pytest.fixture
def bench(root: Path, document: str) -> Iterator[Bench]:
    made = Bench(root, document)
    yield made
    for job_id in made.running():
        made.store.stop(job_id, actor="test", op_id=f"end-{job_id}"[-64:], reason="the test is over")
    until(lambda: not made.running())


def test_the_fastest_that_answers_well_wins_and_nothing_is_left_behind(bench: Bench) -> None:
    job = bench.open()
    report = bench.tune(job)
    assert report.winner == 3
    assert report.drift == 0.0
    won = next(trial for trial in report.trials if trial.number == 3)
    assert won.settings == {"engine.flags.max-total-tokens": 120}
    assert won.measurements[-1].speedup == pytest.approx(1.2)
    assert [trial.number for trial in report.trials[:3]] == [0, 3, 2]
    assert outcomes(report) == {0: "present", 1: "dropped", 2: "finalist", 3: "finalist", 4: "dropped"}
    assert "repeat themselves" in next(trial.reason for trial in report.trials if trial.number == 4)
    assert bench.running() == []
    ended = [event for event in trials_told(job) if event.state == "measured"]
    assert [event.launch for event in ended] == list(range(1, 10))
    assert {event.launches for event in ended} == {9}


def test_a_trial_that_fails_is_an_answer_and_the_others_go_on(bench: Bench) -> None:
    bench.misbehave(t3_r1_server="fail", t2_r2_benchmark="fail")
    report = bench.tune(bench.open())
    assert outcomes(report)[3] == "failed"
    assert outcomes(report)[2] == "failed"
    assert report.winner is None
    assert bench.running() == []


def test_the_run_file_s_own_server_must_work(bench: Bench) -> None:
    bench.misbehave(t0_r1_server="fail")
    with pytest.raises(WorkFailed, match="t0-r1-server failed"):
        bench.tune(bench.open())
    assert bench.running() == []


def test_a_server_that_dies_under_the_measurement_is_a_failed_trial(bench: Bench) -> None:
    bench.misbehave(t1_r1_server="die", t1_r1_benchmark="hang")
    assert outcomes(bench.tune(bench.open()))[1] == "failed"
    assert bench.running() == []


def test_what_was_measured_before_a_stop_is_not_measured_again(bench: Bench) -> None:
    bench.misbehave(t2_r1_server="hang")
    job = bench.open()
    thread, caught = bench.tune_beside(job)
    until(lambda: any(name.startswith("2-r1-server") for name in bench.started()))
    job.stop_requested.set()
    thread.join(60)
    assert isinstance(caught[0], Stopped)
    assert bench.running() == []
    bench.misbehave()
    again = bench.open()
    report = bench.tune(again)
    assert report.winner == 3
    known = [event.settings for event in trials_told(again) if event.state == "known"]
    assert known == ["as the run file has it", "engine.flags.max-total-tokens=60"]


@pytest.mark.parametrize("name", ["engine-python", "models/target/model.safetensors"])
def test_figures_of_another_engine_or_model_are_not_taken_for_this_one_s(bench: Bench, name: str) -> None:
    one_trial = '[tuning]\nprompts = 2\n[tuning.sweep]\n"engine.flags.max-total-tokens" = [120]\n'
    bench.tune(bench.open(), one_trial)
    again = bench.open()
    bench.tune(again, one_trial)
    assert {event.state for event in trials_told(again)} == {"known"}
    path = bench.root / name
    if name == "engine-python":
        path.write_text(path.read_text().replace("0.0-fake", "0.1-fake"))
    else:
        path.write_bytes(path.read_bytes() + b"more")
    upgraded = bench.open()
    bench.tune(upgraded, one_trial)
    assert "known" not in {event.state for event in trials_told(upgraded)}


def test_a_measurement_that_was_damaged_is_made_again(bench: Bench) -> None:
    bench.tune(bench.open())
    directory = bench.root / "runs/trial/tuning/measurements"
    kept = sorted(directory.iterdir())
    assert len(kept) == 9
    kept[0].write_bytes(kept[0].read_bytes()[:-20])
    job = bench.open()
    bench.tune(job)
    states = [event.state for event in trials_told(job)]
    assert states.count("known") == 8
    assert states.count("measured") == 1


def test_two_tunings_of_one_run_do_not_mix(bench: Bench) -> None:
    bench.misbehave(t0_r1_server="hang")
    job = bench.open()
    thread, _ = bench.tune_beside(job)
    until(lambda: bool(bench.started()))
    with pytest.raises(Conflict, match="another tuning is at work"):
        bench.tune(bench.open())
    job.stop_requested.set()
    thread.join(60)


def test_without_anything_to_try_nothing_is_launched(bench: Bench) -> None:
    with pytest.raises(Precondition, match="no combination"):
        bench.tune(bench.open(), '[tuning]\nprompts = 2\n[tuning.sweep]\n"engine.flags.no-such" = [1]\n')
    assert bench.started() == []


def test_a_report_is_read_by_its_job_and_gone_when_it_was_removed(bench: Bench) -> None:
    report = bench.tune(bench.open())
    server = bench.store.list()[0].job_id
    with pytest.raises(Precondition, match="is no tuning but a"):
        read_tuning(bench.store, server)
    with pytest.raises(NotFound):
        read_tuning(bench.store, "absent")
    assert report.reason
