"""From jobs' states and events to what a stage shows."""

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.pipeline.progress import Alive, Failed, StageProgress, Succeeded, describe, judge_child
from remote.protocol import jobs
from remote.protocol.progress import (
    ArmAdvanced,
    CheckpointSaved,
    ExtractionAdvanced,
    MappingBuilt,
    ServerPhase,
    StepLogged,
)


def step(number: int, total: int = 100) -> StepLogged:
    return StepLogged(
        step=number,
        total_steps=total,
        loss=2.5,
        accuracy=[0.4, 0.2],
        learning_rate=1e-3,
        gradient_norm=1.0,
        tokens_per_s=300.0,
        input_wait_fraction=0.0,
    )


def finished(outcome: typing.Literal["succeeded", "failed", "stopped"], reason: str = "") -> jobs.Finished:
    return jobs.Finished(started_at=1.0, ended_at=2.0, outcome=outcome, exit_code=0, signal=None, reason=reason)


CASES: list[tuple[jobs.JobState, type]] = [
    (jobs.Queued(since=1.0), Alive),
    (jobs.Starting(since=1.0), Alive),
    (jobs.Running(since=1.0, pid=2), Alive),
    (jobs.Stalled(since=1.0, pid=2, heartbeat_age_s=30.0), Alive),
    (jobs.Paused(since=1.0, pid=2, reason="the disk is full"), Alive),
    (jobs.Stopping(since=1.0, pid=2, requested_by="ann", reason="enough"), Failed),
    (finished("succeeded"), Succeeded),
    (finished("failed", "no memory"), Failed),
    (finished("stopped", "stopped by ann"), Failed),
    (jobs.Lost(since=1.0, reason="the host restarted"), Failed),
    (jobs.Orphaned(since=1.0, pid=7), Alive),
    (jobs.Foreign(since=1.0, incarnation="other"), Failed),
    (jobs.Unkillable(since=1.0, pids=[7]), Failed),
    (jobs.Quarantined(reason="garbled"), Failed),
]


@pytest.mark.parametrize(("state", "meaning"), CASES)
def test_every_state_of_a_job_means_something_to_its_stage(state, meaning):
    assert isinstance(judge_child(state), meaning)


def test_no_state_was_forgotten():
    assert {type(state) for state, _ in CASES} == set(typing.get_args(jobs.JobState))


def test_trouble_and_failure_keep_their_words():
    assert judge_child(jobs.Paused(since=1.0, pid=2, reason="the disk is full")) == Alive("paused: the disk is full")
    assert judge_child(finished("failed", "no memory")) == Failed("no memory")
    assert judge_child(finished("stopped", "stopped by ann")) == Failed("stopped by ann")


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted))
def test_a_fraction_stays_within_the_share_of_its_job(done, total, share):
    progress = StageProgress(0.0)
    progress.enter("job", (share[0], share[1]))
    progress.take(step(done, total), 1.0)
    fraction = progress.state.fraction
    if total == 0:
        assert fraction is None
    else:
        assert fraction is not None
        assert share[0] <= fraction <= share[1] + 1e-9


def test_the_remaining_time_follows_the_pace_since_the_first_sign():
    progress = StageProgress(0.0)
    progress.take(step(10), 100.0)
    assert progress.state.eta_s is None
    progress.take(step(30), 120.0)
    assert progress.state.eta_s == pytest.approx(70.0)
    progress.take(step(100), 190.0)
    assert progress.state.eta_s == pytest.approx(0.0)


def test_what_says_nothing_of_the_pace_leaves_it():
    progress = StageProgress(0.0)
    progress.take(step(50), 10.0)
    before = progress.state
    progress.take(CheckpointSaved(step=50, path="/x", bytes=1), 11.0)
    assert progress.state == before


def test_news_are_told_at_most_twice_a_second_but_a_new_job_at_once():
    progress = StageProgress(0.0)
    assert progress.to_tell(0.0) == progress.state
    assert progress.to_tell(10.0) is None
    progress.take(step(1), 10.0)
    assert progress.to_tell(10.0) is not None
    progress.take(step(2), 10.2)
    assert progress.to_tell(10.2) is None
    assert progress.to_tell(10.5) == progress.state
    progress.enter("next", (0.5, 1.0))
    assert progress.to_tell(10.6) == progress.state


@pytest.mark.parametrize(
    ("event", "fraction", "words"),
    [
        (ServerPhase(phase="loading_weights", elapsed_s=12.4), None, "loading weights"),
        (
            ExtractionAdvanced(samples_done=3, samples_total=12, tokens_done=4500, bytes_written=9, tokens_per_s=88.4),
            0.25,
            "3 of 12 samples, 4,500 tokens, 88 tok/s",
        ),
        (
            MappingBuilt(draft_vocab_size=2048, target_vocab_size=49152, coverage=0.86),
            1.0,
            "2,048 of 49,152 tokens, coverage 86.0%",
        ),
        (step(25), 0.25, "step 25 of 100, loss 2.500, first draft token 40%, 300 tok/s"),
        (
            ArmAdvanced(
                arm="baseline", prompts_done=5, prompts_total=20, decode_tokens_per_s=14.8, acceptance_length=None
            ),
            0.25,
            "without the drafter: 5 of 20 prompts, 14.8 tok/s",
        ),
        (
            ArmAdvanced(
                arm="drafter",
                prompts_done=30,
                prompts_total=40,
                decode_tokens_per_s=9.8,
                acceptance_length=1.71,
                concurrency=4,
            ),
            0.75,
            "with the drafter, 4 at a time: 30 of 40 prompts, 9.8 tok/s, acceptance length 1.71",
        ),
    ],
)
def test_events_are_told_in_words(event, fraction, words):
    assert describe(event) == (fraction, words)
