"""Trainings on the screen: all jobs of one together, and which checkpoints are kept."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from console.state.host import Curves, HostState
from console.state.trainings import checkpoints_of, differences, standing_words, trainings_of, why_not_resumed
from remote.protocol.jobs import Finished
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, StepLogged, TrainingPhase
from tests.protocol.protocol_samples import JOB, TRAINING_SPEC

STOPPED = Finished(started_at=1.0, ended_at=2.0, outcome="stopped", exit_code=0, signal=None, reason="")


def logged(step: int) -> StepLogged:
    return StepLogged(
        step=step,
        total_steps=900,
        loss=1.0,
        accuracy=[0.5],
        learning_rate=1e-3,
        gradient_norm=1.0,
        tokens_per_s=1.0,
        input_wait_fraction=0.0,
    )


def training(name: str, *, created_at: float = 1.0, state=STOPPED, place: str = "/checkpoints", **settings):
    told = msgspec.structs.replace(TRAINING_SPEC.training, **settings)
    spec = msgspec.structs.replace(TRAINING_SPEC, training=told, checkpoints=place)
    return msgspec.structs.replace(
        JOB, job_id=name, agent="training", spec=spec, state=state, created_at=created_at, result=None
    )


def host(*jobs) -> HostState:
    state = HostState("lab")
    state.set_jobs(list(jobs))
    return state


@given(st.lists(st.floats(1.0, 4.0), min_size=1, max_size=30), st.integers(1, 5))
def test_the_newest_and_the_best_are_kept_as_the_host_keeps_them(lengths, kept) -> None:
    curves, there = Curves(), {}
    for number, length in enumerate(lengths, 1):
        at, step = 10.0 * number, 100 * number
        curves.take(at, CheckpointSaved(step=step, path="", bytes=1))
        curves.take(at + 1, DrafterMeasured(step=step, acceptance_length=length, accuracy=[], tokens=1, best=False))
        curves.take(at + 2, TrainingPhase(phase="step"))
        there[step] = length
        best = max(there, key=lambda step: (there[step], step))
        there = {step: there[step] for step in {*sorted(there)[-kept:], best}}
    state = host(training("a", checkpoints_kept=kept))
    state.curves["a"] = curves
    found = checkpoints_of(trainings_of(state)[0])
    assert {each.step for each in found if each.is_kept} == set(there)
    assert [each.step for each in found if each.is_best] == [max(there, key=lambda step: (there[step], step))]
    assert [each.step for each in found if each.is_last] == [100 * len(lengths)]


def test_jobs_that_went_on_with_each_other_are_one_training() -> None:
    state = host(
        training("first"), training("second", created_at=2.0), training("other", created_at=1.5, place="/elsewhere")
    )
    for name, steps in {"first": (10, 20, 30), "second": (20, 40)}.items():
        curves = state.curves.setdefault(name, Curves())
        for at, step in enumerate(steps):
            curves.take(float(at) + 100.0 * (name == "second"), logged(step))
    newest, other = trainings_of(state)
    assert ([job.job_id for job in newest.jobs], other.job.job_id) == (["first", "second"], "other")
    assert [(each.at, each.step.step) for each in newest.curves.steps] == [(0.0, 10), (100.0, 20), (101.0, 40)]


def test_it_says_from_where_one_that_ended_early_can_go_on() -> None:
    state = host(training("a"))
    curves = state.curves.setdefault("a", Curves())
    assert standing_words(trainings_of(state)[0]) == "can begin again at step 0"
    curves.take(1.0, logged(250))
    curves.take(2.0, CheckpointSaved(step=200, path="", bytes=1))
    (found,) = trainings_of(state)
    assert standing_words(found) == "step 250 of 900: can go on from the checkpoint of step 200"
    assert why_not_resumed(found) is None
    (done,) = trainings_of(host(training("a", state=msgspec.structs.replace(STOPPED, outcome="succeeded"))))
    assert why_not_resumed(done) == "a is done; its drafter is there."


def test_what_two_were_set_to_is_told_where_it_differs() -> None:
    newest, oldest = trainings_of(host(training("a", created_at=2.0, seed=7), training("b", place="/b")))
    assert differences(newest, oldest) == [("training.seed", "7", str(oldest.spec.training.seed))]
