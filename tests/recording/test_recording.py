"""A recording is written line by line and read again, also when its recorder was killed."""

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.recording.clock import SPEEDS, PlayClock
from console.recording.format import LinkLost, Recorded, RecordingEnded, RecordingStarted
from console.recording.reader import contents, open_recording, read_recording, torn_words
from console.recording.writer import RecordingWriter
from remote.protocol.frames import Heartbeat, LogData

STORY = [
    Recorded(at=0.0, what=RecordingStarted(host="lab", began_at=1000.0)),
    Recorded(at=2.0, what=Heartbeat(at=1002.0)),
    Recorded(at=1.0, what=LogData(job_id="a", offset=0, data=b"back-filled\n")),
    Recorded(at=3.0, what=RecordingEnded(reason="interrupted")),
]


def written(path: Path) -> Path:
    with RecordingWriter(path) as writer:
        for record in STORY:
            writer.write(record)
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_was_written_is_read_in_the_order_of_its_time(tmp_path, name) -> None:
    recording = open_recording(written(tmp_path / name))
    assert recording.records == sorted(STORY, key=lambda record: record.at)
    assert not recording.torn
    found = contents(recording)
    assert (found.host, found.began_at, found.duration_s, found.ended) == ("lab", 1000.0, 3.0, "interrupted")
    assert found.log_bytes == len(b"back-filled\n")


def test_a_file_of_that_name_is_a_file_that_was_compressed(tmp_path) -> None:
    assert gzip.decompress(written(tmp_path / "r.jsonl.gz").read_bytes()) == written(tmp_path / "r.jsonl").read_bytes()


def test_every_line_is_there_before_the_file_is_closed(tmp_path) -> None:
    writer = RecordingWriter(tmp_path / "r.jsonl")
    writer.write(STORY[0])
    assert read_recording(tmp_path / "r.jsonl") == STORY[:1]
    compressed = RecordingWriter(tmp_path / "r.jsonl.gz")
    compressed.write(STORY[0])
    compressed.flush()
    recording = open_recording(tmp_path / "r.jsonl.gz")
    assert recording.records == STORY[:1]
    assert recording.torn


@pytest.mark.parametrize("at", [1e300, -1e300, 4e8])
def test_a_moment_that_no_recording_has_is_refused(tmp_path, at) -> None:
    lines = [
        Recorded(at=0.0, what=RecordingStarted(host="lab", began_at=1000.0)),
        Recorded(at=at, what=Heartbeat(at=1.0)),
    ]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    with pytest.raises(UsageError, match="line 2 is of no time of a recording"):
        open_recording(path)


@given(st.data())
def test_a_recording_of_a_killed_recorder_has_every_whole_line(tmp_path_factory, data) -> None:
    directory = tmp_path_factory.mktemp("torn")
    whole = written(directory / "r.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    (directory / "torn.jsonl").write_bytes(whole[:cut])
    recording = open_recording(directory / "torn.jsonl")
    assert len(recording.records) == whole[:cut].count(b"\n")
    assert recording.torn == (cut < len(whole))
    if recording.torn:
        assert "cut off" in torn_words(recording)


def test_a_compressed_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path) -> None:
    whole = written(tmp_path / "r.jsonl.gz").read_bytes()
    (tmp_path / "torn.jsonl.gz").write_bytes(whole[:-9])
    assert open_recording(tmp_path / "torn.jsonl.gz").torn


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "nothing is in it"),
        (b"root:x:0:0", "not one whole line"),
        (b"root:x:0:0\n", "line 1 is no record"),
        (b"[" * 100_000 + b"\x7f\n", "line 1 is no record"),
        (b"\x1f\x8bno gzip", "damaged"),
        (b'{"type":"recorded","at":0,"what":{"type":"heartbeat","at":1}}\nx\n', "line 2"),
        (
            (
                b'{"type":"recorded","at":0,"what":{"type":"recording_started","format":9,"host":"a","began_at":1}}\n'
                b'{"type":"recorded","at":0,"what":{"type":"not_known_yet"}}\n'
            ),
            "newer Roost",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_the_reason(tmp_path, data, words) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        open_recording(tmp_path / "x")


def test_a_foreign_recording_has_nothing_in_it_that_a_terminal_would_obey(tmp_path) -> None:
    hostile = "a\x1b]52;c;b3duZWQ=\x07b\x1b[2Jc\u202ed\x00e\r\nf"
    reason = Recorded(at=1.0, what=LinkLost(reason=hostile, retry_in_s=1.0))
    started = Recorded(at=0.0, what=RecordingStarted(host=hostile, began_at=1000.0))
    (tmp_path / "r.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (started, reason)))
    recording = open_recording(tmp_path / "r.jsonl")
    assert recording.host == contents(recording).host == "abcde f"
    assert recording.records[1].what == LinkLost(reason="abcde\nf", retry_in_s=1.0)


def test_a_recording_is_never_written_over_a_file_and_an_empty_one_is_not_left(tmp_path) -> None:
    written(tmp_path / "r.jsonl")
    with pytest.raises(UsageError, match="exists"):
        RecordingWriter(tmp_path / "r.jsonl")
    with RecordingWriter(tmp_path / "empty.jsonl"):
        pass
    assert not (tmp_path / "empty.jsonl").exists()
    with pytest.raises(UsageError, match="No such file"):
        RecordingWriter(tmp_path / "nowhere/r.jsonl")


class Time:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_clock_stands_runs_jumps_and_never_leaves_the_recording() -> None:
    time = Time()
    clock = PlayClock(10.0, duration_s=100.0, speed=2.0, running=True, monotonic=time)
    time.now += 5
    assert clock.now() == 20.0
    assert clock.wait_s(30.0) == 5.0
    clock.toggle()
    time.now += 5
    assert clock.now() == 20.0
    assert clock.wait_s(30.0) is None
    assert clock.wait_s(20.0) == 0.0
    clock.set(-5.0)
    assert clock.now() == 0.0
    clock.set(1000.0)
    assert clock.now() == 100.0
    clock.set(90.0)
    clock.toggle()
    time.now += 50
    assert clock.now() == 100.0
    assert not clock.running


@given(st.lists(st.sampled_from(["toggle", "faster", "slower", "wait"]), max_size=30))
def test_changing_the_pace_never_moves_the_position(steps) -> None:
    time = Time()
    clock = PlayClock(0.0, duration_s=1e9, running=True, monotonic=time)
    told = []
    clock.on_change = lambda: told.append(clock.now())
    for step in steps:
        before = clock.now()
        match step:
            case "toggle":
                clock.toggle()
            case "faster":
                clock.speed_up(1)
            case "slower":
                clock.speed_up(-1)
            case "wait":
                time.now += 1.0
                assert clock.now() >= before
                continue
        assert clock.now() == pytest.approx(before)
        assert clock.speed in SPEEDS
    assert len(told) == len([step for step in steps if step != "wait"])
