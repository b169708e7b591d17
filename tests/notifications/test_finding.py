"""What people are told of, and that they are told once."""

import msgspec
import pytest

from remote.notifications.finding import Finder
from remote.protocol.jobs import Finished, Job, JobResult, JobState, Lost
from remote.protocol.notifications import Notification
from remote.protocol.specs import RunSpec, Spec
from remote.protocol.telemetry import Diagnosis
from tests.protocol.protocol_samples import JOB, MAPPING_COPY, RUN, TRAINING_SPEC

BEGAN = 1000.0


def ended(outcome: str = "succeeded", at: float = BEGAN + 5, reason: str = "") -> Finished:
    return Finished(started_at=at - 1, ended_at=at, outcome=outcome, exit_code=0, signal=None, reason=reason)  # pyright: ignore[reportArgumentType]


def job(job_id: str, state: JobState, spec: Spec, run_id: str | None = None, **summary: object) -> Job:
    result = JobResult(summary=summary)  # pyright: ignore[reportArgumentType]
    return msgspec.structs.replace(JOB, job_id=job_id, state=state, spec=spec, run_id=run_id, result=result)


def trouble(code: str = "runway_short", subject: str = "/data", severity: str = "error") -> Diagnosis:
    return Diagnosis(
        code=code,  # pyright: ignore[reportArgumentType]
        severity=severity,  # pyright: ignore[reportArgumentType]
        subject=subject,
        since=BEGAN,
        summary="the disk is full in 40 min",
        evidence="2 GiB are free",
        advice="make room",
    )


@pytest.fixture
def finder() -> Finder:
    return Finder([], BEGAN, "lab-7")


def kinds(found: list[Notification]) -> dict[str, str]:
    return {each.subject: each.kind for each in found}


def test_what_a_person_started_and_waits_for_is_told(finder: Finder) -> None:
    run = job("run-a", ended(), RunSpec(run=RUN), decision="reject", speedup=0.66, acceptance_length=1.15)
    over = [
        run,
        job("training-a", ended(), TRAINING_SPEC),
        job("training-b", ended("failed", reason="out of memory"), TRAINING_SPEC),
        job("training-c", Lost(since=BEGAN + 1, reason="the host was restarted"), TRAINING_SPEC),
    ]
    found = finder.advance(over, [], BEGAN + 9)
    assert kinds(found) == {
        "run-a": "verdict",
        "training-a": "finished",
        "training-b": "failed",
        "training-c": "failed",
    }
    verdict, _, failed, _ = found
    assert (verdict.text, verdict.decision) == ("run-a: reject, 0.66x the speed, acceptance length 1.15", "reject")
    assert failed.text == "training-b failed: out of memory"
    assert {each.host_name for each in found} == {"lab-7"}


@pytest.mark.parametrize(
    "quiet",
    [
        job("stopped", ended("stopped"), TRAINING_SPEC),
        job("stage", ended(), TRAINING_SPEC, run_id="run-a"),
        job("copy", ended("failed"), MAPPING_COPY),
        job("before", ended(at=BEGAN - 1), TRAINING_SPEC),
        job("lost-before", Lost(since=BEGAN - 1, reason=""), TRAINING_SPEC),
    ],
    ids=lambda job: job.job_id,
)
def test_what_nobody_waits_for_is_not_told(finder: Finder, quiet: Job) -> None:
    assert finder.advance([quiet], [], BEGAN + 9) == []


def test_a_job_is_told_once_also_by_the_next_finder(finder: Finder) -> None:
    over = [job("training-a", ended(), TRAINING_SPEC)]
    told = finder.advance(over, [], BEGAN + 9)
    assert len(told) == 1
    assert finder.advance(over, [], BEGAN + 10) == []
    assert Finder(told, BEGAN, "lab-7").advance(over, [], BEGAN + 11) == []


def test_short_disks_and_faulty_devices_are_told_and_not_again_while_they_waver(finder: Finder) -> None:
    wrong = [
        trouble(),
        trouble("hardware", "GPU 3"),
        trouble("hardware", "GPU 4", "warning"),
        trouble("gpu_idle", "GPU 5"),
    ]
    told = finder.advance([], wrong, BEGAN)
    assert kinds(told) == {"/data": "disk_short", "GPU 3": "gpu_fault"}
    assert told[0].text == "the disk is full in 40 min: 2 GiB are free. make room"
    assert finder.advance([], [], BEGAN + 60) == []
    assert finder.advance([], [trouble()], BEGAN + 120) == []
    assert Finder(told, BEGAN, "lab-7").advance([], wrong, BEGAN + 180) == []
    assert kinds(finder.advance([], [trouble()], BEGAN + 7 * 3600)) == {"/data": "disk_short"}
