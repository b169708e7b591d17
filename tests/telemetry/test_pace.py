"""The pace of a job from its own progress."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.protocol.progress import (
    ArmAdvanced,
    CheckpointSaved,
    ExtractionAdvanced,
    FilesCopied,
    Note,
    ProgressRecord,
    ServerPhase,
    ServerReady,
    ServerRestarting,
    StageChanged,
    StagePending,
    StageRunning,
    StepLogged,
    TrainingPhase,
)
from remote.telemetry.pace import Pace

T0 = 1000.0


def step(number: int, loss: float | None = 2.0) -> StepLogged:
    return StepLogged(
        step=number,
        total_steps=100,
        loss=loss,
        accuracy=[0.5],
        learning_rate=1e-4,
        gradient_norm=1.0,
        tokens_per_s=2048.0,
        input_wait_fraction=0.0,
    )


def extracted(samples: int) -> ExtractionAdvanced:
    return ExtractionAdvanced(
        samples_done=samples,
        samples_total=1000,
        tokens_done=samples * 1700,
        bytes_written=samples * 1_000_000,
        tokens_per_s=0.0,
    )


def told(*events: tuple[float, object]) -> Pace:
    pace = Pace()
    for seq, (at, event) in enumerate(events, start=1):
        pace.take(ProgressRecord(seq=seq, at=T0 + at, event=event))
    return pace


def test_an_extraction_tells_what_it_still_writes_and_how_long_it_takes():
    pace = told(*((second * 2.0, extracted(second * 4)) for second in range(60)))
    reading = pace.read(T0 + 118)
    assert reading.activity == "extract"
    assert reading.samples_per_s == pytest.approx(2.0)
    assert reading.tokens_per_s == pytest.approx(3400.0)
    assert reading.bytes_per_s == pytest.approx(2e6)
    assert reading.bytes_left == (1000 - 236) * 1_000_000
    assert reading.seconds_left == pytest.approx((1000 - 236) / 2.0)
    assert reading.progress_period_s == 2.0
    assert reading.progress_age_s == 0.0


def test_a_job_that_stands_still_grows_old_and_slows_down():
    pace = told(*((float(second), extracted(second)) for second in range(30)))
    reading = pace.read(T0 + 329)
    assert reading.progress_age_s == 300.0
    assert reading.samples_per_s < 0.2
    assert reading.seconds_left > 5000


def test_the_time_of_a_checkpoint_is_no_step_and_no_period():
    events = [(float(second), step(second)) for second in range(1, 11)]
    events += [(10.1, TrainingPhase(phase="checkpoint")), (70.0, CheckpointSaved(step=10, path="/c", bytes=9))]
    pace = told(*events)
    assert pace.read(T0 + 69).activity == "checkpoint"
    pace.take(ProgressRecord(seq=99, at=T0 + 70, event=TrainingPhase(phase="step")))
    pace.take(ProgressRecord(seq=100, at=T0 + 71, event=step(11)))
    reading = pace.read(T0 + 71)
    assert (reading.activity, reading.progress_period_s) == ("step", 1.0)
    assert reading.tokens_per_s == 2048.0


def test_what_waits_for_its_shard_is_kept_but_not_written():
    def kept(samples: int, *, on_disk: int) -> ExtractionAdvanced:
        return ExtractionAdvanced(
            samples_done=samples,
            samples_total=100,
            tokens_done=samples * 10,
            bytes_written=on_disk * 1000,
            bytes_pending=(samples - on_disk) * 1000,
            tokens_per_s=0.0,
        )

    reading = told((0.0, kept(10, on_disk=0)), (10.0, kept(30, on_disk=20))).read(T0 + 10)
    assert reading.bytes_per_s == pytest.approx(2000.0)
    assert reading.bytes_left == 80_000


def test_a_run_does_what_its_stage_is():
    pace = told((0.0, StageChanged(stage="server", state=StagePending(bytes_to_write=None))))
    assert pace.read(T0).activity == "load"
    pace.take(ProgressRecord(seq=2, at=T0 + 1, event=StageChanged(stage="server", state=StageRunning(since=T0))))
    assert pace.read(T0 + 1).activity == "server"
    pace.take(ProgressRecord(seq=3, at=T0 + 2, event=StageChanged(stage="training", state=StageRunning(since=T0))))
    reading = pace.read(T0 + 9000)
    assert (reading.activity, reading.progress_period_s) == ("training", None)


def test_a_loss_that_is_not_finite_is_told_as_that():
    assert told((0.0, step(1, loss=None))).read(T0).loss_is_finite is False
    assert told((0.0, step(1))).read(T0).loss_is_finite is True
    assert told().read(T0).loss_is_finite is None


def test_a_server_loads_then_serves_and_has_no_period():
    ready = ServerReady(url="", engine="sglang", engine_version="", model="", pid=1, startup_s=1.0)
    pace = told((0.0, ServerPhase(phase="loading_weights", elapsed_s=0.0)))
    assert pace.read(T0).activity == "load"
    pace.take(ProgressRecord(seq=2, at=T0 + 30, event=ready))
    assert (pace.read(T0 + 900).activity, pace.read(T0 + 900).progress_period_s) == ("serve", None)


def test_a_server_whose_engine_died_loads_again_and_says_how_often_and_why():
    pace = Pace()
    assert (pace.read(1.0).restarts, pace.read(1.0).restarted_age_s) == (0, None)
    for seq, at in enumerate((10.0, 70.0), 1):
        pace.take(
            ProgressRecord(
                seq=seq, at=at, event=ServerRestarting(reason=f"death {seq}", restart=seq, most=3, pause_s=2.0)
            )
        )
    reading = pace.read(100.0)
    assert (reading.activity, reading.restarts, reading.restarted_age_s) == ("load", 2, 30.0)
    assert reading.restarted_because == "death 2"


def test_an_evaluation_tells_its_acceptance():
    arm = ArmAdvanced(arm="drafter", prompts_done=3, prompts_total=20, decode_tokens_per_s=17.5, acceptance_length=1.15)
    reading = told((0.0, arm)).read(T0 + 1)
    assert (reading.acceptance_length, reading.tokens_per_s, reading.activity) == (1.15, 17.5, "evaluate")


def test_work_that_begins_again_is_not_mistaken_for_a_jump():
    pace = told((0.0, extracted(500)), (1.0, extracted(600)), (2.0, extracted(10)), (3.0, extracted(11)))
    assert pace.read(T0 + 3).samples_per_s == pytest.approx(1.0)


EVENTS = st.sampled_from(
    [
        extracted(0),
        extracted(7),
        extracted(1000),
        extracted(2000),
        step(1),
        step(5, loss=None),
        FilesCopied(bytes_done=0, bytes_total=0),
        FilesCopied(bytes_done=5, bytes_total=4),
        Note(level="info", text="x"),
        TrainingPhase(phase="export"),
    ]
)


@given(st.lists(st.tuples(st.floats(-50, 500), EVENTS), max_size=30), st.floats(-100, 1000))
def test_no_history_gives_negative_or_impossible_figures(events, now):
    reading = told(*events).read(T0 + now)
    figures = (
        reading.progress_age_s,
        reading.progress_period_s,
        reading.samples_per_s,
        reading.tokens_per_s,
        reading.bytes_per_s,
        reading.bytes_left,
        reading.seconds_left,
    )
    assert all(figure is None or 0 <= figure < float("inf") for figure in figures)
