"""Events of the hardware: each once, however often and in whatever order they are told."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.recording.reader import read_recording
from console.state.marks import Mark, Marks
from remote.protocol.frames import Telemetry
from remote.protocol.jobs import Job, Paused
from remote.protocol.telemetry import Diagnosis, GpuEvent, JobSample, TelemetrySample
from tests.ui.conftest import RECORDINGS

REASON = "less than 2 GiB free on /workspace"


@pytest.fixture(scope="module")
def quiet() -> TelemetrySample:
    """A reading of eight GPUs on which nothing happens."""
    records = read_recording(RECORDINGS / "kimi_extraction.jsonl")
    sample = next(record.what.sample for record in records if isinstance(record.what, Telemetry))
    return msgspec.structs.replace(sample, gpu_events=[], diagnoses=[], jobs=[])


def told(samples: list[TelemetrySample]) -> list[Mark]:
    marks = Marks()
    for sample in samples:
        marks.add(sample)
    return marks.all


def history(quiet: TelemetrySample) -> list[TelemetrySample]:
    """Ten minutes: an XID and GPU 6 lost for good after it, GPU 4 throttled twice, an extraction that waits a while."""
    samples = []
    for at in range(0, 600, 5):
        changes: dict = {"sampled_at": float(at)}
        if at == 100:
            event = GpuEvent(at=98.5, gpu_index=6, xid=63, text="row remapping", source="nvml")
            changes["gpu_events"] = [event]
        if at >= 120:
            gpus = [
                msgspec.structs.replace(gpu, error="off the bus" if gpu.gpu_index == 6 else None) for gpu in quiet.gpus
            ]
            changes["gpus"] = gpus
        if 200 <= at < 260 or at >= 500:
            since = 195.0 if at < 260 else 495.0
            changes["diagnoses"] = [
                Diagnosis(
                    code="throttled",
                    severity="warning",
                    subject="GPU 4",
                    since=since,
                    summary="GPU 4 is too hot",
                    evidence="",
                    advice="",
                )
            ]
        if 300 <= at < 400:
            changes["jobs"] = [
                JobSample(
                    job_id="e",
                    agent="extraction",
                    run_id="r",
                    process_count=1,
                    cpu_utilization=0.0,
                    memory_bytes=1,
                    activity="paused",
                )
            ]
        samples.append(msgspec.structs.replace(quiet, **changes))
    return samples


EXPECTED = [
    Mark(98.5, 98.5, "xid", "GPU 6 XID 63: row remapping"),
    Mark(120.0, 595.0, "lost", "GPU 6 lost: off the bus"),
    Mark(195.0, 255.0, "throttled", "GPU 4 is too hot"),
    Mark(300.0, 395.0, "paused", "extraction paused"),
    Mark(495.0, 595.0, "throttled", "GPU 4 is too hot"),
]


def test_what_happened_is_there_from_its_beginning_to_its_end(quiet) -> None:
    assert told(history(quiet)) == EXPECTED
    assert told([quiet]) == []


@given(st.data())
def test_they_are_the_same_in_any_order_and_told_twice(quiet, data) -> None:
    samples = history(quiet)
    shuffled = data.draw(st.permutations(samples))
    again = data.draw(st.lists(st.sampled_from(samples), max_size=20))
    assert told([*shuffled, *again]) == EXPECTED


def test_a_pause_says_why_once_its_job_has_told(quiet) -> None:
    marks = Marks()
    for sample in history(quiet):
        marks.add(sample)
    job = Job(
        job_id="e",
        agent="extraction",
        state=Paused(since=298.0, pid=1, reason=REASON),
        revision=1,
        created_at=0.0,
        created_by="ann",
        command=["x"],
        run_id="r",
    )
    marks.add_pause(job)
    assert [mark for mark in marks.all if mark.kind == "paused"] == [
        Mark(298.0, 395.0, "paused", f"extraction paused: {REASON}")
    ]
