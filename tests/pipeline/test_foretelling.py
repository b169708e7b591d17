"""How long a plan says that it takes, by runs that did the like."""

from collections.abc import Callable

import msgspec
import pytest

from remote.pipeline.config import load_run
from remote.pipeline.foretelling import PastRun, Worked, foretell
from remote.pipeline.plan import UNKNOWN_TIME
from remote.pipeline.timings import Span, time_extraction
from remote.protocol.progress import (
    STAGES,
    ArmAdvanced,
    ExtractionAdvanced,
    ExtractionPlanned,
    Progress,
    ProgressRecord,
    StepLogged,
    TrainingPhase,
)
from remote.protocol.reports import RunPlan, StagePlan


def records(*events: tuple[float, Progress]) -> list[ProgressRecord]:
    return [ProgressRecord(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(events, 1)]


def planned(needed: int, total: int) -> ExtractionPlanned:
    return ExtractionPlanned(
        samples=10,
        tokens=1000,
        loss_tokens=500,
        shards=1,
        bytes_total=total,
        bytes_needed=needed,
        inodes_needed=1,
        bytes_free=1 << 40,
        inodes_free=None,
        unfit=0,
        sample_id="c-0",
        sample_text="",
    )


def advanced(done: int) -> ExtractionAdvanced:
    return ExtractionAdvanced(
        samples_done=1, samples_total=10, tokens_done=done, bytes_written=0, tokens_per_s=1.0, tokens_total=1000
    )


def logged(step: int) -> StepLogged:
    return StepLogged(
        step=step,
        total_steps=4,
        loss=1.0,
        accuracy=[],
        learning_rate=1e-3,
        gradient_norm=1.0,
        tokens_per_s=1.0,
        input_wait_fraction=0.0,
    )


def asked(arm: str, done: int) -> ArmAdvanced:
    return ArmAdvanced(arm=arm, prompts_done=done, prompts_total=4, decode_tokens_per_s=1.0, acceptance_length=None)


WORK = {
    "extraction": Worked(Span(0, 30), records((10, planned(5, 5)), (20, advanced(500)), (30, advanced(1000)))),
    "training": Worked(
        Span(0, 20),
        records(
            *((5.0 + step, logged(step)) for step in range(1, 5)),
            (9.0, TrainingPhase(phase="checkpoint")),
            (11.0, TrainingPhase(phase="measurement")),
            (14.0, TrainingPhase(phase="step")),
        ),
    ),
    "evaluation-drafter": Worked(Span(0, 9), records((3, asked("drafter", 1)), (6, asked("drafter", 4)))),
    "evaluation-baseline": Worked(Span(0, 9), records((3, asked("baseline", 1)), (9, asked("baseline", 4)))),
}


SIZES = {"extraction": 1000, "vocabulary": 10, "training": 500}


@pytest.fixture
def plan(document: str) -> Callable[..., RunPlan]:
    def draw(**overrides: str) -> RunPlan:
        settings = {key.replace("__", "."): value for key, value in overrides.items()}
        stages = [
            StagePlan(
                stage=name,
                action="run",
                reason="",
                command=[],
                output=None,
                bytes_needed=SIZES.get(name),
                seconds=None,
            )
            for name in STAGES
        ]
        return RunPlan(
            run=load_run(document, settings),
            directory="/runs/trial",
            stages=stages,
            bytes_needed=1510,
            bytes_free=1 << 40,
            problems=[],
            fingerprint="f",
            risks=[UNKNOWN_TIME],
        )

    return draw


def past(plan: RunPlan, job_id: str = "run-before", **seconds: float) -> PastRun:
    took = dict.fromkeys(STAGES, 10.0) | {"extraction": 32.0, "training": 21.0} | seconds
    sizes = {stage.stage: stage.bytes_needed for stage in plan.stages}
    return PastRun(job_id, plan.run, took, sizes, WORK.get)


def seconds(found: RunPlan) -> dict[str, float | None]:
    return {stage.stage: stage.seconds for stage in found.stages}


def test_a_host_that_has_seen_nothing_knows_no_times(plan) -> None:
    found = foretell(plan(), [])
    assert set(seconds(found).values()) == {None}
    assert found.seconds is None
    assert UNKNOWN_TIME in found.risks


def test_the_same_run_takes_what_it_took_and_says_which_one_it_was(plan) -> None:
    now = plan()
    found = foretell(now, [past(now)])
    assert seconds(found)["extraction"] == 32.0
    assert seconds(found)["evaluation"] == 10.0
    assert found.seconds == sum(value for value in seconds(found).values() if value is not None)
    assert {stage.seconds_from for stage in found.stages} == {"run-before"}
    assert UNKNOWN_TIME not in found.risks


def test_a_training_takes_its_steps_and_its_checkpoints(plan) -> None:
    found = foretell(plan(training__steps="104", training__checkpoint_every="52"), [past(plan())])
    # 1 s a step, 2 + 3 s a checkpoint; the rest of its 20 s, the first steps among them, stays as it was.
    assert seconds(found)["training"] == pytest.approx(104 * 1.0 + 2 * 5.0 + (20 - 1 - 5))


def test_an_extraction_grows_with_its_store_but_for_its_beginning(plan) -> None:
    now = plan()
    twice = [
        msgspec.structs.replace(stage, bytes_needed=2 * (stage.bytes_needed or 0))
        if stage.stage == "extraction"
        else stage
        for stage in now.stages
    ]
    found = foretell(msgspec.structs.replace(now, stages=twice), [past(now)])
    assert seconds(found)["extraction"] == pytest.approx(12.0 + 2 * 20.0)


def test_more_prompts_take_longer(plan) -> None:
    now = plan()
    more = msgspec.structs.replace(now.run, evaluation=msgspec.structs.replace(now.run.evaluation, prompts=4))
    found = foretell(msgspec.structs.replace(now, run=more), [past(now)])
    assert seconds(found)["evaluation"] == pytest.approx(10.0 + 3.0 + 6.0)


def test_a_stage_that_is_skipped_takes_no_time(plan) -> None:
    now = plan()
    stages = [
        msgspec.structs.replace(stage, action="skip") if stage.stage == "extraction" else stage for stage in now.stages
    ]
    assert seconds(foretell(msgspec.structs.replace(now, stages=stages), [past(now)]))["extraction"] == 0.0


@pytest.mark.parametrize(
    ("setting", "value", "unknown"),
    [
        ("extraction__concurrency", "2", {"extraction"}),
        ("training__batch_tokens", "64", {"training"}),
        ("evaluation__max_tokens", "5", {"evaluation"}),
        ("training__learning_rate", "0.5", set()),
        ("engine__environment", '{OMP_NUM_THREADS = "2"}', {"server", "extraction", "serving", "evaluation"}),
    ],
)
def test_what_was_done_at_another_pace_says_nothing(plan, setting: str, value: str, unknown: set[str]) -> None:
    found = foretell(plan(**{setting: value}), [past(plan())])
    assert {name for name, value in seconds(found).items() if value is None} == unknown
    assert (found.seconds is None) is bool(unknown)


def test_the_newest_run_that_did_the_like_is_asked(plan) -> None:
    now = plan()
    runs = [past(plan(extraction__concurrency="2"), "run-new", verdict=3.0), past(now, "run-old", verdict=9.0)]
    sources = {stage.stage: stage.seconds_from for stage in foretell(now, runs).stages}
    assert (sources["verdict"], sources["extraction"]) == ("run-new", "run-old")


def test_an_extraction_that_went_on_is_timed_by_what_it_did_itself() -> None:
    found = time_extraction(records((10, planned(2, 5)), (20, advanced(600)), (30, advanced(1000))))
    assert found is not None
    assert (found.tokens, found.tokens_total, found.seconds) == (400, 1000, 10)
