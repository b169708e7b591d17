"""The contract on the wire: golden bytes, round trips, what is ignored and what is refused."""

import types
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_samples import SAMPLES

from remote.protocol.base import Message
from remote.protocol.codec import (
    MAX_LINE_BYTES,
    ProtocolError,
    decode_call,
    decode_host_frame,
    decode_progress_record,
    decode_spec,
    encode_line,
)
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Answer, Call, Failure, HostFrame, JobChanged, LogData, ProgressMade
from remote.protocol.ids import is_job_id, new_job_id, new_op_id
from remote.protocol.jobs import Finished, Job, JobState, Orphaned, Quarantined, Queued, Running, Stalled, Stopping
from remote.protocol.progress import Note, Progress, ProgressRecord, StageState, StepLogged
from remote.protocol.requests import LogPage, ReadLog, Reply, Request, StartJob, StopJob, Watch
from remote.protocol.run import RunConfig
from remote.protocol.specs import MappingCopySpec, RunSpec, Spec

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocol" / "v1"


def tag_of(message: type[Message]) -> str:
    return str(message.__struct_config__.tag)


def members(union: Any) -> set[type[Message]]:
    return set(get_args(union)) if isinstance(union, types.UnionType) else {union}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: tag_of(type(sample)))
def test_a_message_is_written_and_read_as_it_was_in_version_1(sample):
    golden = (GOLDEN / f"{tag_of(type(sample))}.json").read_bytes()
    assert encode_line(sample) == golden
    assert msgspec.json.decode(golden, type=type(sample)) == sample


def wire_messages() -> list[type[Message]]:
    """What `remote.protocol` defines; a recording's own lines are no part of the contract."""
    return [message for message in Message.__subclasses__() if message.__module__.startswith("remote.protocol.")]


def test_every_message_has_one_sample_and_one_golden_file():
    every = {tag_of(message) for message in wire_messages()}
    assert sorted(tag_of(type(sample)) for sample in SAMPLES) == sorted(every)
    assert {path.stem for path in GOLDEN.iterdir()} == every


def test_no_two_messages_share_a_tag():
    tags = [tag_of(message) for message in wire_messages()]
    assert len(tags) == len(set(tags))


def test_every_member_of_every_union_is_a_message():
    known = set(wire_messages())
    for union in (Spec, JobState, Progress, StageState, Request, Reply, HostFrame):
        assert members(union) <= known
        assert len(members(union)) > 1


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
job_ids = st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True)
counts = st.integers(0, 2**53)
specs = st.builds(MappingCopySpec, source=text, destination=text, replace=st.booleans())
notes = st.builds(Note, level=st.sampled_from(["info", "warning", "error"]), text=text)
steps = st.builds(
    StepLogged,
    step=counts,
    total_steps=counts,
    loss=finite,
    accuracy=st.lists(finite, max_size=8),
    learning_rate=finite,
    gradient_norm=finite,
    tokens_per_s=finite,
    input_wait_fraction=finite,
)
records = st.builds(ProgressRecord, seq=counts, at=finite, event=notes | steps)
states = st.one_of(
    st.builds(Queued, since=finite),
    st.builds(Running, since=finite, pid=counts),
    st.builds(Stalled, since=finite, pid=counts, heartbeat_age_s=finite),
    st.builds(Stopping, since=finite, pid=counts, requested_by=text, reason=text),
    st.builds(Orphaned, since=finite, pid=counts),
    st.builds(Quarantined, reason=text),
    st.builds(
        Finished,
        started_at=finite,
        ended_at=finite,
        outcome=st.sampled_from(["succeeded", "failed", "stopped"]),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        reason=text,
    ),
)
jobs = st.builds(
    Job,
    job_id=job_ids,
    agent=text,
    state=states,
    revision=counts,
    created_at=finite,
    created_by=text,
    command=st.lists(text, max_size=5),
    spec=st.none() | specs,
    run_id=st.none() | job_ids,
    last_line=text,
    last_progress=st.none() | records,
)
errors = st.builds(ErrorInfo, code=st.sampled_from(ErrorCode), message=text, hint=st.none() | text)
requests = st.one_of(
    st.builds(StartJob, job_id=job_ids, spec=specs, op_id=job_ids),
    st.builds(StopJob, job_id=job_ids, op_id=job_ids, reason=text, expected_revision=st.none() | counts),
    st.builds(ReadLog, job_id=job_ids, offset=st.none() | counts, limit=counts),
    st.builds(Watch, telemetry=st.booleans(), logs=st.dictionaries(job_ids, counts, max_size=4)),
)
pages = st.builds(LogPage, job_id=job_ids, offset=counts, data=st.binary(max_size=200), start=counts, size=counts)
host_frames = st.one_of(
    st.builds(Answer, call_id=counts, reply=pages),
    st.builds(Failure, call_id=counts, error=errors),
    st.builds(JobChanged, job=jobs),
    st.builds(ProgressMade, job_id=job_ids, record=records),
    st.builds(LogData, job_id=job_ids, offset=counts, data=st.binary(max_size=200)),
)


@given(host_frames)
def test_host_frames_survive_the_wire(frame):
    line = encode_line(frame)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_host_frame(line) == frame


@given(counts, requests)
def test_calls_survive_the_wire(number, request):
    call = Call(call_id=number, request=request)
    assert decode_call(encode_line(call)) == call


@given(records, specs)
def test_records_and_specs_survive_the_disk(record, spec):
    assert decode_progress_record(encode_line(record)) == record
    assert decode_spec(encode_line(spec)) == spec


@given(st.binary(max_size=200))
def test_noise_is_refused_with_the_protocols_own_error(noise):
    for decode in (decode_call, decode_host_frame, decode_progress_record, decode_spec):
        with pytest.raises(ProtocolError):
            decode(noise)


def test_a_newer_peers_fields_are_ignored():
    line = b'{"type":"heartbeat","at":1.5,"mood":"good"}\n'
    assert decode_host_frame(line).at == 1.5


def test_an_unknown_message_is_refused_by_name():
    with pytest.raises(ProtocolError, match="earthquake"):
        decode_host_frame(b'{"type":"earthquake","at":1.5}\n')
    with pytest.raises(ProtocolError, match="dance"):
        decode_call(b'{"type":"call","call_id":1,"request":{"type":"dance"}}\n')


def test_a_misspelt_key_of_a_run_is_refused():
    good = next(sample for sample in SAMPLES if isinstance(sample, RunSpec)).run
    document = msgspec.to_builtins(good) | {"trainnig": {}}
    with pytest.raises(msgspec.ValidationError, match="trainnig"):
        msgspec.convert(document, RunConfig)


def test_lines_end_at_one_mebibyte():
    empty = LogData(job_id="a", offset=0, data=b"")
    room = MAX_LINE_BYTES - len(encode_line(empty))
    fits = LogData(job_id="a", offset=0, data=b"x" * (room // 4 * 3))
    assert len(encode_line(fits)) <= MAX_LINE_BYTES
    with pytest.raises(ProtocolError, match="limit"):
        encode_line(LogData(job_id="a", offset=0, data=b"x" * (room // 4 * 3 + 4)))
    with pytest.raises(ProtocolError, match="limit"):
        decode_host_frame(encode_line(empty).rstrip() + b" " * MAX_LINE_BYTES)


@pytest.mark.parametrize("name", ["../x", "", "UPPER", "-dash", "a" * 65, "a/b", "a\n"])
def test_names_that_are_no_job_ids(name):
    assert not is_job_id(name)
    with pytest.raises(ProtocolError):
        decode_call(msgspec.json.encode(Call(call_id=1, request=ReadLog(job_id=name, offset=0, limit=1))))


@given(text)
def test_fresh_ids_are_always_ids(stem):
    assert is_job_id(new_job_id(stem))
    assert is_job_id(new_op_id())
