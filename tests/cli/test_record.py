"""`roost record` and `roost replay --json` on a host that is only played."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from played_host import NOW, sample_at

from console.recording.format import LinkLost, LinkUp, RecordingEnded, RecordingStarted
from console.recording.reader import open_recording
from console.state.link import Lost, Up
from remote.protocol.frames import Heartbeat, JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.jobs import Finished, Job, JobResult, Running
from remote.protocol.progress import Note, ProgressRecord
from remote.protocol.reports import VerdictReport
from remote.protocol.requests import JobList

RUN = "run-a-260718-101500-ab12"
DONE = Finished(started_at=NOW - 100, ended_at=NOW, outcome="succeeded", exit_code=0, signal=None, reason="")


def job(job_id: str, agent: str, state, **changes) -> Job:
    made = Job(
        job_id=job_id, agent=agent, state=state, revision=1, created_at=NOW - 100, created_by="ann", command=["x"]
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def run_that_ends(recorded) -> list[Job]:
    """A run with a training and a foreign job; the run ends while it is recorded."""
    at_work = Running(since=NOW - 100, pid=1)
    jobs = [
        job(RUN, "run", at_work, log_size=4),
        job(f"{RUN}-training", "training", at_work, run_id=RUN),
        job("other", "training", at_work),
        job("recorder-1", "recorder", at_work),
    ]
    recorded.jobs = jobs
    result = JobResult(outputs=[], summary={"decision": "promote"})
    over = msgspec.structs.replace(jobs[0], state=DONE, result=result, log_size=6)
    note = ProgressRecord(seq=1, at=NOW - 50, event=Note(level="info", text="begun"))
    recorded.streamed = [
        Heartbeat(at=NOW),
        Telemetry(sample=sample_at(NOW - 1)),
        Telemetry(sample=sample_at(NOW + 1)),
        ProgressMade(job_id=RUN, record=note),
        LogData(job_id=RUN, offset=4, data=b"en"),
        JobChanged(job=over),
        Telemetry(sample=sample_at(NOW + 2)),
    ]
    return jobs


def kinds(path: Path) -> list[type]:
    return [type(record.what) for record in open_recording(path).records]


def test_a_run_is_recorded_until_it_is_over_with_its_verdict(recorded, run_that_ends, roost, tmp_path) -> None:
    file = tmp_path / "run.jsonl"
    result = roost("record", str(file), "--until", RUN, "--host", "lab", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["recording"]
    assert (found["host"], found["ended"], found["samples"], found["log_bytes"]) == ("lab", "job over", 2, 2)
    records = open_recording(file).records
    assert kinds(file)[:2] == [RecordingStarted, LinkUp]
    assert kinds(file)[-2:] == [VerdictReport, RecordingEnded]
    listed = next(record.what for record in records if isinstance(record.what, JobList))
    assert listed.jobs == run_that_ends
    watch = next(asked for asked in recorded.asked if hasattr(asked, "logs"))
    assert set(watch.logs) == set(watch.progress) == {RUN, f"{RUN}-training"}


def test_what_the_host_recorded_before_comes_first_at_its_own_time(recorded, run_that_ends, roost, tmp_path) -> None:
    file = tmp_path / "run.jsonl.gz"
    assert roost("record", str(file), "--until", RUN, "--since", "10m").exit_code == 0
    records = open_recording(file).records
    samples = [(record.at, record.what.sample.sampled_at) for record in records if isinstance(record.what, Telemetry)]
    assert len(samples) == len(recorded.recorded) + 1, "no reading twice"
    assert all(at == pytest.approx(sampled_at - (NOW - 600), abs=5) for at, sampled_at in samples)
    (told,) = [record.at for record in records if isinstance(record.what, ProgressMade)]
    assert told == 550.0


def test_a_recording_begins_with_its_first_reading(recorded, run_that_ends, roost, tmp_path) -> None:
    file = tmp_path / "run.jsonl"
    assert roost("record", str(file), "--until", RUN, "--since", "30d").exit_code == 0
    first, *rest = open_recording(file).records
    assert first.what == RecordingStarted(host="lab", began_at=recorded.recorded[0].sampled_at)
    assert next(record.at for record in rest if isinstance(record.what, Telemetry)) == 0.0


def test_jobs_of_before_are_at_work_until_they_were_over(recorded, run_that_ends, roost, tmp_path) -> None:
    recorded.jobs = [job("old", "training", DONE), *run_that_ends]
    file = tmp_path / "run.jsonl"
    roost("record", str(file), "--until", RUN, "--since", "10m")
    old = [(r.at, r.what.job.state) for r in open_recording(file).records if isinstance(r.what, JobChanged)]
    old = [(at, state) for at, state in old if state == DONE or isinstance(state, Running)]
    assert (500.0, Running(since=NOW - 100, pid=0)) in old
    assert (600.0, DONE) in old


def test_a_job_of_before_begins_without_what_it_told_later(recorded, run_that_ends, roost, tmp_path) -> None:
    file = tmp_path / "run.jsonl"
    roost("record", str(file), "--until", RUN, "--since", "10m")
    jobs = [(r.at, r.what.job) for r in open_recording(file).records if isinstance(r.what, JobChanged)]
    first = next(job for _, job in jobs if job.job_id == RUN)
    assert (first.last_progress, first.last_line, first.log_size) == (None, "", 0)


def test_the_readings_of_a_lost_link_are_added_when_it_is_back(recorded, run_that_ends, roost, tmp_path) -> None:
    up = recorded.state
    recorded.streamed = [
        Heartbeat(at=NOW),
        Telemetry(sample=sample_at(NOW - 10)),
        Lost(since=0.0, reason="reset", retry_at=1.0),
        Up(since=2.0, latency_s=0.01, welcome=up.welcome),
        Telemetry(sample=sample_at(NOW + 1)),
    ]
    file = tmp_path / "r.jsonl"
    result = roost("record", str(file), "--count", "2")
    assert "link lost (reset)" in result.output
    assert LinkLost in kinds(file)
    times = [r.what.sample.sampled_at for r in open_recording(file).records if isinstance(r.what, Telemetry)]
    assert sorted(times) == [*(NOW - 10 + second for second in range(11)), NOW + 1]


def test_a_count_of_readings_ends_it(recorded, run_that_ends, roost, tmp_path) -> None:
    result = roost("record", str(tmp_path / "r.jsonl"), "--count", "2", "--json")
    found = json.loads(result.stdout)["recording"]
    assert (found["samples"], found["ended"]) == (2, "long enough")
    watch = next(asked for asked in recorded.asked if hasattr(asked, "logs"))
    assert set(watch.logs) == {RUN, f"{RUN}-training", "other"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--until", "a", "--count", "3"), "excludes"),
        (("--since", "soon"), "is no time"),
        (("--since", "2999-01-01T00:00:00Z"), "is yet to come"),
        (("--until", "no such job"), "is no job id"),
    ],
)
def test_what_makes_no_sense_leaves_no_file(recorded, roost, tmp_path, arguments, words) -> None:
    result = roost("record", str(tmp_path / "r.jsonl"), *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "r.jsonl").exists()


def test_a_file_that_is_there_is_left_alone(recorded, roost, tmp_path) -> None:
    (tmp_path / "r.jsonl").write_text("mine")
    result = roost("record", str(tmp_path / "r.jsonl"))
    assert result.exit_code == 2
    assert (tmp_path / "r.jsonl").read_text() == "mine"


def test_a_file_that_is_no_recording_is_named(tmp_path, roost) -> None:
    (tmp_path / "x").write_text("hello\n")
    for arguments in (("--json",), ()):
        result = roost("replay", str(tmp_path / "x"), *arguments)
        assert result.exit_code == 2
        assert "line 1 is no record of a session" in result.output


def test_a_replay_that_would_begin_after_the_end_is_refused(roost) -> None:
    file = Path(__file__).parents[1] / "recordings/kimi_extraction.jsonl"
    result = roost("replay", str(file), "--at", "9999")
    assert result.exit_code == 2
    assert "295 s long" in result.output
    assert json.loads(roost("replay", str(file), "--json").stdout)["recording"]["samples"] == 60


CTRL_C = """
import asyncio, sys
sys.path[:0] = [{cli!r}, {protocol!r}]
from contextlib import asynccontextmanager
from played_host import PlayedHost, NOW, sample_at
from console import operations
from remote.protocol.frames import Telemetry
host = PlayedHost()
host.recorded = [sample_at(NOW)]
async def events():
    for event in host.streamed:
        yield event
    yield Telemetry(sample=sample_at(NOW + 1))
    print("ready", flush=True)
    await asyncio.sleep(60)
host.events = events
@asynccontextmanager
async def open_host(name, *, actor):
    yield host
operations.open_host = open_host
from console.cli.main import main
main()
"""


def test_ctrl_c_ends_a_recording_well(tmp_path) -> None:
    tests = Path(__file__).parents[1]
    script = CTRL_C.format(cli=str(tests / "cli"), protocol=str(tests / "protocol"))
    file = tmp_path / "r.jsonl.gz"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "record", str(file), "--json"], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(output)["recording"]["ended"] == "interrupted"
    assert not open_recording(file).torn
