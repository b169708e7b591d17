"""The plain stream: sentences for what matters, each once, at a calm rate; no drawing, and an end in order."""

import os
import pty
import re
import socket
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_host import NOW, sample_at
from protocol_samples import JOB, TELEMETRY_SAMPLE

from console.cli.plain_words import CALM_S, PlainWords, standing
from console.recording.format import LinkConnecting, LinkLost, LinkUp, RecordingEnded, RecordingStarted
from console.recording.reader import read_recording
from console.state.host import HostState
from console.state.link import Connecting, Lost, Up
from console.ui.recording import _link_state
from remote.protocol.frames import ApprovalsWaiting, Heartbeat, JobChanged, ProgressMade, Telemetry
from remote.protocol.jobs import Finished, Queued, Running, Stalled
from remote.protocol.progress import ProgressRecord, StageChanged, StageDone, StageRunning
from remote.protocol.reports import RunPlan, VerdictReport
from remote.protocol.requests import JobList
from remote.protocol.telemetry import GpuTopology

RECORDINGS = Path(__file__).parents[1] / "recordings"
NO_EVENTS = (RunPlan, VerdictReport, GpuTopology, RecordingStarted, RecordingEnded)


def told_of(name: str) -> list[tuple[float, str]]:
    """What is said of a recording, with the second of it."""
    state, words, said = HostState("lab"), PlainWords(), []
    for record in read_recording(RECORDINGS / name):
        match record.what:
            case LinkUp() | LinkLost() | LinkConnecting() as change:
                state.apply(_link_state(change, record.at), record.at)
            case JobList(jobs=jobs):
                state.set_jobs(jobs)
            case event if not isinstance(event, NO_EVENTS):
                state.apply(event, record.at)
        said += [(record.at, sentence) for sentence in words.changes(state, record.at)]
    return said


def test_a_run_is_told_stage_by_stage_with_its_verdict_and_nothing_twice() -> None:
    told = told_of("embedded_run.jsonl")
    said = [sentence for _, sentence in told]
    wanted = ("server: done in", "extraction: done in", "vocabulary: done in", "training: done in", "serving: done in")
    places = [next(at for at, sentence in enumerate(said) if f"run embedded, {words}" in sentence) for words in wanted]
    assert places == sorted(places)
    assert "run embedded: succeeded." in said
    assert any(sentence.startswith("Verdict of run embedded: promote, 1.15 times as fast") for sentence in said)
    assert len(said) == len(set(said)) < 60


def test_what_goes_on_alike_is_told_at_a_calm_rate() -> None:
    told = [(at, words) for at, words in told_of("kimi_extraction.jsonl") if "kimi-k2-5, extraction: running" in words]
    assert len(told) > 3
    assert all(later - earlier >= CALM_S for (earlier, _), (later, _) in pairwise(told))


def test_an_alert_is_told_when_it_comes_with_what_to_do_and_when_it_goes() -> None:
    said = [sentence for _, sentence in told_of("kimi_extraction.jsonl")]
    (alert,) = [sentence for sentence in said if "XID 63" in sentence]
    assert alert.startswith("Alert, grave: GPU 6 reported XID 63 (row remapping). Let the run end")
    state, words = HostState("lab"), PlainWords()
    diagnoses = TELEMETRY_SAMPLE.diagnoses
    state.apply(Telemetry(sample=msgspec.structs.replace(sample_at(NOW), diagnoses=diagnoses)), 0.0)
    assert any(sentence.startswith("Alert") for sentence in words.changes(state, 0.0))
    state.apply(Telemetry(sample=sample_at(NOW + 1)), 1.0)
    assert [sentence for sentence in words.changes(state, 1.0) if sentence.startswith("No longer: ")]


def up(since: float) -> Up:
    return Up(since=since, latency_s=0.004, welcome=WELCOME)


WELCOME = next(
    record.what.welcome
    for record in read_recording(RECORDINGS / "embedded_run.jsonl")
    if isinstance(record.what, LinkUp)
)


def test_a_link_that_is_lost_is_told_with_its_reason_and_age_and_when_it_is_there_again() -> None:
    state, words = HostState("lab"), PlainWords()

    def after(link, now: float) -> list[str]:
        state.apply(link, now)
        return words.changes(state, now)

    assert after(Connecting(attempt=1, since=0.0), 0.0) == ["Connecting to lab."]
    assert after(up(1.0), 1.0) == ["Connected to lab, round trip 4 milliseconds."]
    lost = Lost(since=10.0, reason="broken pipe", retry_at=12.0)
    assert after(lost, 10.0) == ["The link is lost: broken pipe. Jobs on the host go on. It is tried again by itself."]
    assert after(Connecting(attempt=2, since=10.0), 12.0) == []
    assert after(lost, 20.0) == []
    assert after(lost, 70.0) == ["Still no connection to lab, for 1:00."]
    assert after(up(80.0), 80.0) == ["Connected to lab again after 1:10. Jobs went on."]


def test_a_host_that_says_nothing_any_more_is_told() -> None:
    state, words = HostState("lab"), PlainWords()
    state.apply(up(0.0), 0.0)
    state.apply(Heartbeat(at=NOW), 1.0)
    words.changes(state, 1.0)
    assert words.changes(state, 8.0) == ["No word from lab for 7 s."]
    assert words.changes(state, 9.0) == []
    state.apply(Heartbeat(at=NOW + 9), 10.0)
    assert words.changes(state, 10.0) == ["lab is heard again."]


JOBS = ("extraction-1", "training-2")
STATES = st.sampled_from(
    [
        Queued(since=NOW),
        Running(since=NOW, pid=7),
        Stalled(since=NOW, pid=7, heartbeat_age_s=40.0),
        Finished(
            started_at=NOW, ended_at=NOW + 9, outcome="failed", exit_code=1, signal=None, reason="a\x1b[31mred\nend"
        ),
    ]
)
EVENTS = st.one_of(
    st.builds(
        lambda name, state: JobChanged(job=msgspec.structs.replace(JOB, job_id=name, run_id=None, state=state)),
        st.sampled_from(JOBS),
        STATES,
    ),
    st.builds(lambda at: Heartbeat(at=NOW + at), st.floats(0, 100)),
    st.builds(lambda at: Telemetry(sample=sample_at(NOW + at)), st.integers(0, 100)),
    st.builds(lambda count: ApprovalsWaiting(count=count, changed_at=NOW), st.integers(0, 3)),
    st.builds(lambda at: Lost(since=at, reason="x\x07\n", retry_at=at + 1), st.floats(0, 100)),
    st.builds(up, st.floats(0, 100)),
)


@given(st.lists(EVENTS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_comes_each_change_is_told_once(events) -> None:
    state, words = HostState("lab"), PlainWords()
    state.set_jobs([])
    for now, event in enumerate(events):
        state.apply(event, float(now))
        words.changes(state, float(now))
        assert words.changes(state, float(now)) == []
    assert standing(state, float(len(events)))


def test_a_stage_that_was_over_before_is_told_in_one_sentence_and_later_ones_as_they_end() -> None:
    run = msgspec.structs.replace(
        JOB, job_id="run-a", agent="run", run_id=None, progress_seq=2, state=Running(since=NOW, pid=1), result=None
    )
    state, words = HostState("lab"), PlainWords()
    state.set_jobs([run])

    def stage(seq: int, name, stage_state) -> list[str]:
        record = ProgressRecord(seq=seq, at=NOW, event=StageChanged(stage=name, state=stage_state))
        state.apply(ProgressMade(job_id="run-a", record=record), float(seq))
        return [sentence for sentence in words.changes(state, float(seq)) if "stage" in sentence or ", " in sentence]

    done = StageDone(started_at=NOW, ended_at=NOW + 5)
    assert not any("preflight" in sentence for sentence in stage(1, "preflight", done))
    assert "run a, stages behind it: preflight." in stage(2, "server", StageRunning(since=NOW, fraction=0.5))
    assert stage(3, "server", done) == ["run a, server: done in 5 s."]


def test_the_command_tells_a_host_until_its_link_is_closed(recorded, roost) -> None:
    recorded.jobs = [JOB]
    told = roost("--plain", "--host", "lab")
    assert told.exit_code == 0
    assert "\x1b" not in told.stdout
    lines = told.stdout.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in lines)
    assert any("roost stop JOB" in line for line in lines)
    assert any(line.endswith("The link is closed.") for line in lines)
    assert roost("--plain", "jobs").exit_code == 2


@pytest.fixture
def nobody(tmp_path, monkeypatch) -> None:
    """A host `lab` at whose port nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for name in ("CONFIG", "STATE", "DATA"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        (tmp_path / "config/roost").mkdir(parents=True)
        (tmp_path / "config/roost/roost.toml").write_text(f'[hosts.lab]\naddress = "127.0.0.1"\nport = {port}\n')
        yield


@pytest.mark.parametrize(("typed", "code"), [(b"\x03", 130), (b"q\n", 0)])
def test_a_dumb_terminal_is_told_sentences_and_a_key_ends_them_in_order(nobody, typed: bytes, code: int) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "dumb"}
        os.execv(sys.executable, [sys.executable, "-m", "console.cli", "--host", "lab"])
    written = b""
    while b"lab is not reached" not in written:
        written += os.read(terminal, 1 << 16)
    os.write(terminal, typed)
    try:
        while block := os.read(terminal, 1 << 16):
            written += block
    except OSError:  # how a pseudo-terminal says that nobody is at its other end any more
        pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert b"\x1b" not in written
    assert written.count(b"nothing can be drawn") == 1
