"""Messages to and from lines: one JSON object and a newline, at most 1 MiB."""

from typing import TypeVar

import msgspec

from remote.protocol.base import Message
from remote.protocol.frames import Call, HostFrame
from remote.protocol.progress import ProgressRecord
from remote.protocol.specs import Spec

MAX_LINE_BYTES = 1 << 20
"""The longest line that either side sends or accepts, newline included."""

KEPT_VARIABLE = "ROOST_KEPT"
"""Set where a link is a step of a batch allocation: supervisors are its keeper's to start."""

READY_MARKER = b"@@ROOST-READY"
"""Written once on a line of its own before the first frame; everything before it is a banner or a noisy shell."""

_T = TypeVar("_T")
_encoder = msgspec.json.Encoder()
_call = msgspec.json.Decoder(Call)
_host_frame: msgspec.json.Decoder[HostFrame] = msgspec.json.Decoder(HostFrame)
_progress_record = msgspec.json.Decoder(ProgressRecord)
_spec: msgspec.json.Decoder[Spec] = msgspec.json.Decoder(Spec)


class ProtocolError(ValueError):
    """A line that is no message of this protocol; says what is wrong with it."""


def encode_line(message: Message) -> bytes:
    """`message` as one line, newline included; raises ProtocolError when it would be longer than 1 MiB."""
    line = _encoder.encode(message) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(
            f"a {type(message).__name__} of {len(line)} bytes is over the limit of {MAX_LINE_BYTES} bytes a line"
        )
    return line


def _decode(decoder: "msgspec.json.Decoder[_T]", line: bytes, what: str) -> _T:
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a {what} line of {len(line)} bytes is over the limit of {MAX_LINE_BYTES} bytes")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a {what}: {error}") from error


def decode_call(line: bytes) -> Call:
    """The call on a line; raises ProtocolError."""
    return _decode(_call, line, "call")


def decode_host_frame(line: bytes) -> HostFrame:
    """The host's frame on a line; raises ProtocolError."""
    return _decode(_host_frame, line, "host frame")


def decode_progress_record(line: bytes) -> ProgressRecord:
    """The progress record on a line; raises ProtocolError."""
    return _decode(_progress_record, line, "progress record")


def decode_spec(data: bytes) -> Spec:
    """The spec in `data`; raises ProtocolError."""
    return _decode(_spec, data, "spec")
