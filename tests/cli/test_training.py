"""`roost training`."""

import json

import msgspec
import pytest
from protocol_samples import EVENTS, JOB, RUN, SERVER, TRAINING_PLAN, TRAINING_SPEC

from remote.protocol.jobs import Finished
from remote.protocol.progress import DrafterMeasured, StepLogged
from remote.protocol.requests import PlanTraining, StartJob
from remote.protocol.specs import DrafterExportSpec, RunSpec, TrainingSpec

DOCUMENT = 'preset = "embedded"\n'


def ended(outcome: str = "stopped") -> Finished:
    return Finished(started_at=1.0, ended_at=2.0, outcome=outcome, exit_code=0, signal=None, reason="")


def training(job_id: str, *, state=None, run_id: str | None = None, place: str | None = None, **settings):
    told = msgspec.structs.replace(TRAINING_SPEC.training, **settings)
    spec = msgspec.structs.replace(TRAINING_SPEC, training=told, checkpoints=f"/trainings/{place or job_id}")
    return msgspec.structs.replace(
        JOB, job_id=job_id, agent="training", spec=spec, run_id=run_id, state=state or ended()
    )


@pytest.fixture
def host(played_host):
    run = msgspec.structs.replace(JOB, job_id="the-run", agent="run", spec=RunSpec(run=RUN))
    played_host.jobs = [
        training("a", learning_rate=1e-3),
        training("b", learning_rate=2e-3, ttt_length=5, run_id="the-run"),
        training("done", state=ended("succeeded")),
        run,
    ]
    step = next(event for event in EVENTS if isinstance(event, StepLogged))
    measured = next(event for event in EVENTS if isinstance(event, DrafterMeasured))
    better = msgspec.structs.replace(measured, step=measured.step + 500, acceptance_length=2.5)
    played_host.server_events = [step, measured, better, msgspec.structs.replace(step, step=step.step + 10)]
    played_host.training_plan = msgspec.structs.replace(TRAINING_PLAN, problems=[])
    return played_host


def started(host) -> TrainingSpec | DrafterExportSpec:
    (spec,) = [request.spec for request in host.asked if isinstance(request, StartJob)]
    return spec


def test_a_plan_shows_what_stands_in_the_way_and_exits_5(host, roost) -> None:
    host.training_plan = TRAINING_PLAN
    told = roost("training", "plan", "embedded", "--store", "s", "--mapping", "m", "--output", "o", "--set", "a.b=1")
    assert told.exit_code == 5
    assert "goes on from its newest checkpoint" in told.stdout
    assert "problem: training.ranks is 2" in told.stdout
    assert "trackers  tensorboard, wandb" in told.stdout
    assert host.asked == [PlanTraining(document=DOCUMENT, overrides={"a.b": "1"}, store="s", mapping="m", output="o")]
    document = json.loads(roost("training", "plan", "embedded", "--json").stdout)["training_plan"]
    assert document["samples"] == 1200


def test_a_start_is_the_planned_training_and_one_with_problems_is_refused(host, roost) -> None:
    told = roost("training", "start", "embedded", "--key", "mine", "--json")
    assert told.exit_code == 0, told.stderr
    assert started(host) == TRAINING_SPEC
    document = json.loads(told.stdout)["training"]
    assert document["plan"]["action"] == "resume"
    assert document["job"]["job_id"] == "training-embedded-mine"
    host.training_plan = TRAINING_PLAN
    refused = roost("training", "start", "embedded", "--json")
    assert refused.exit_code == 5
    assert "training.ranks is 2" in json.loads(refused.stdout)["error"]["message"]


def test_one_that_ended_early_is_gone_on_with_on_other_ranks(host, roost) -> None:
    told = roost("training", "resume", "a", "--ranks", "4", "--json")
    assert told.exit_code == 0, told.stderr
    spec = started(host)
    assert isinstance(spec, TrainingSpec)
    assert spec.training.ranks == 4
    assert spec.training.learning_rate == 1e-3
    assert spec.fingerprint == TRAINING_SPEC.fingerprint
    assert json.loads(told.stdout)["training"]["plan"] is None


@pytest.mark.parametrize(
    ("job_id", "said"), [("done", "is done: its drafter is /runs/embedded/drafter"), ("working", "has not ended")]
)
def test_one_that_is_done_or_at_work_is_not_gone_on_with(host, roost, job_id, said) -> None:
    host.jobs.append(training("working", state=JOB.state))
    refused = roost("training", "resume", job_id, "--json")
    assert refused.exit_code == 5
    assert said in json.loads(refused.stdout)["error"]["message"]


def test_a_checkpoint_is_exported_from_the_training_of_a_run(host, roost) -> None:
    told = roost("training", "export", "the-run", "exported", "--step", "500", "--layout", "speculators", "--no-wait")
    assert told.exit_code == 0, told.stderr
    spec = started(host)
    assert isinstance(spec, DrafterExportSpec)
    assert (spec.training.training.learning_rate, spec.directory, spec.step) == (2e-3, "exported", 500)
    assert spec.layout == "speculators"


def test_a_job_that_is_no_training_is_refused(played_host, roost) -> None:
    played_host.jobs = [msgspec.structs.replace(JOB, job_id="other", agent="server", spec=SERVER)]
    refused = roost("training", "export", "other", "x", "--json")
    assert refused.exit_code == 5
    assert "is no training" in json.loads(refused.stdout)["error"]["message"]


def test_trainings_are_compared_by_what_differs(host, roost) -> None:
    told = roost("training", "compare", "a", "the-run")
    assert told.exit_code == 0, told.stderr
    rows = {line.split("  ")[0]: line for line in told.stdout.splitlines()}
    assert "0.001" in rows["training.learning_rate"]
    assert "0.002" in rows["training.learning_rate"]
    assert "training.steps" not in rows
    assert "2.500 at step" in rows["best on validation text"]
    first, second = json.loads(roost("training", "compare", "a", "b", "--json").stdout)["training_comparison"]
    assert (first["job_id"], second["job_id"]) == ("a", "b")
    assert second["settings"] == {"training.learning_rate": 2e-3, "training.ttt_length": 5}
    assert len(first["steps"]) == 2
    assert first["best_validation"]["acceptance_length"] == 2.5


def test_a_training_that_was_gone_on_with_is_one(host, roost) -> None:
    host.jobs.append(msgspec.structs.replace(training("a-again", place="a"), created_at=JOB.created_at + 60))
    (found,) = json.loads(roost("training", "compare", "a", "--json").stdout)["training_comparison"]
    assert (found["job_id"], found["job_ids"]) == ("a-again", ["a", "a-again"])
    assert len(found["steps"]) == 2, "the same steps were done again"
    assert roost("training", "compare", "a", "a-again").exit_code == 2


def test_the_same_training_twice_is_no_comparison(host, roost) -> None:
    assert roost("training", "compare", "b", "the-run").exit_code == 2
