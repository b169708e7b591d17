"""What a run still writes: all that its plan says of the stages to come, and of the present one what its job says."""

from remote.protocol.progress import (
    Note,
    StageChanged,
    StageDone,
    StageName,
    StagePending,
    StageRunning,
    StageSkipped,
    StageState,
)
from remote.telemetry.run_need import RunNeed

PLAN: dict[StageName, int | None] = {"server": None, "extraction": 1000, "vocabulary": 10, "training": 600}
DONE = StageDone(started_at=1.0, ended_at=2.0)


def planned(**states: StageState) -> RunNeed:
    need = RunNeed()
    for stage, size in PLAN.items():
        need.take(StageChanged(stage=stage, state=StagePending(bytes_to_write=size)))
    for stage, state in states.items():
        need.take(StageChanged(stage=stage, state=state))
    return need


def test_without_a_plan_nothing_is_known():
    need = RunNeed()
    need.take(Note(level="info", text="x"))
    need.take(StageChanged(stage="extraction", state=StageRunning(since=1.0, fraction=0.5)))
    assert need.bytes_left({}) is None


def test_all_stages_to_come_count():
    assert planned().bytes_left({}) == 1610
    assert planned(extraction=DONE, vocabulary=StageSkipped()).bytes_left({}) == 600
    assert planned(extraction=DONE, vocabulary=DONE, training=DONE).bytes_left({}) == 0


def test_of_the_stage_at_work_its_job_knows_best():
    at_work = planned(extraction=StageRunning(since=1.0, job_id="a", fraction=0.25))
    assert at_work.bytes_left({}) == 750 + 610
    assert at_work.bytes_left({"a": None}) == 750 + 610
    assert at_work.bytes_left({"a": 400}) == 400 + 610
    assert planned(training=StageRunning(since=1.0)).bytes_left({}) == 1610
